# The `pybroker` command as an image. README.md beside this file says how it is built and run.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
# Wheels come from the build context, so that the build reaches no network; this stage keeps them out of the image.
COPY wheels/ /wheels/
RUN python -m venv --without-pip /opt/pybroker \
 && python -m pip --python /opt/pybroker/bin/python install --no-cache-dir --no-index --find-links /wheels pybroker

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/pybroker /opt/pybroker
ENV PATH=/opt/pybroker/bin:$PATH PYTHONUNBUFFERED=1
# A number, so that an orchestrator can tell that it is not root.
USER 10001:10001
WORKDIR /
STOPSIGNAL SIGTERM
ENTRYPOINT ["pybroker"]
CMD ["worker"]
