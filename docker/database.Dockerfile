# PostgreSQL as the compose file and the container tests use it: not root, TLS only, one database of an ordinary role.
ARG POSTGRES_IMAGE=postgres:18
FROM ${POSTGRES_IMAGE}
USER root
# The user of the worker's image, so that one volume can hand the password from one to the other.
RUN echo 'broker:x:10001:10001::/var/lib/broker:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'broker:x:10001:' >> /etc/group \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/broker /var/lib/broker/data \
 && install -d -o 10001 -g 10001 -m 0755 /run/broker
COPY docker/database-entrypoint /usr/local/bin/
USER 10001:10001
ENV PGDATA=/var/lib/broker/data/cluster PGHOST=/tmp PGUSER=broker PGDATABASE=postgres
STOPSIGNAL SIGINT
EXPOSE 5432
HEALTHCHECK --interval=2s --timeout=5s --start-period=60s CMD pg_isready --quiet
ENTRYPOINT ["database-entrypoint"]
CMD ["postgres"]
