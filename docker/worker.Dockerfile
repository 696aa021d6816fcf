# The `pybroker` command as an image. README.md beside this file says how it is built and run.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ARG EXTRAS=migrate,telemetry,worker
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY pybroker pybroker/
COPY migrations migrations/
COPY sql sql/
COPY workers workers/
# Where wheels lie beside the source, nothing is fetched: a build without a network. (A name that exists keeps COPY content.)
COPY LICENSE wheel[s] wheels/
RUN python -m venv --without-pip /opt/pybroker \
 && if ls wheels/*.whl >/dev/null 2>&1; then set -- --no-index --find-links wheels "pybroker[$EXTRAS]"; else set -- ".[$EXTRAS]"; fi \
 && python -m pip --python /opt/pybroker/bin/python install --no-cache-dir "$@"

FROM ${PYTHON_IMAGE}
# Key and certificate directories that a volume takes its owner from.
RUN install -d -o 10001 -g 10001 -m 0700 /var/lib/pybroker /var/lib/pybroker/keys \
 && install -d -o 10001 -g 10001 -m 0755 /var/lib/pybroker/certificates /run/pybroker \
 && chmod 0711 /var/lib/pybroker
COPY --from=build /opt/pybroker /opt/pybroker
ENV PATH=/opt/pybroker/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYBROKER_KEY_DIRECTORY=/var/lib/pybroker/keys \
    PYBROKER_HEARTBEAT_FILE=/tmp/pybroker-heartbeat
# A number, so that an orchestrator can tell that it is not root.
USER 10001:10001
WORKDIR /
STOPSIGNAL SIGTERM
# The worker touches the file every 5 seconds. One that waits for its database is healthy: a restart would not help.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD test -n "$(find "$PYBROKER_HEARTBEAT_FILE" -newermt '-30 seconds')"
ENTRYPOINT ["pybroker"]
CMD ["worker"]
