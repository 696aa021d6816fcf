"""Four brokers on one network: a container for each PostgreSQL and for each worker, TLS between all of them."""

from __future__ import annotations

import contextlib
import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

import docker
from pybroker.migrations import migrate
from tests.ledgers import TARGET_SERVICE, define, service_of
from tests.patience import NotStartedError, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from docker.models.containers import Container

    from tests.containers.images import Images

PORT = 4022
_CLIENT, _KEYS, _DATA = "/run/broker", "/var/lib/pybroker/keys", "/var/lib/broker/data"
# A cut line is found out in seconds instead of the minute that is right for a real network.
_IMPATIENT = (
    "&connect_timeout=3&tcp_user_timeout=4000&keepalives_idle=2&keepalives_interval=1&keepalives_count=2"
)
_WORKER = "pybroker worker --resend-after 1 --reconnect-after 0.5 --retry-connect-after 0.5"
# As in compose.yaml: a worker that begins while its database is away gives up after some attempts.
_POLICY = {"Name": "unless-stopped"}
# What a cable that was pulled does: the kernel has no way to that address any more (SIOCADDRT, SIOCDELRT of a reject route).
_ROUTE = """
import fcntl, socket, struct, sys
def address(host): return struct.pack('=HH4s8x', socket.AF_INET, 0, socket.inet_aton(host))
route = struct.pack('=Q16s16s16sH6x', 0, address(sys.argv[2]), address('0.0.0.0'), address('255.255.255.255'), 0x0205)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, int(sys.argv[1], 16), route + bytes(80))
"""


class Broker:
    """A PostgreSQL and the worker beside it.

    Attributes:
        name: of the database, of its ordinary owner and of the worker's certificate; the worker's host name.
    """

    def __init__(self, name: str, deployment: Deployment) -> None:
        self.name = name
        self._deployment = deployment
        self.database_host = f"{name}-database"
        self.database: DockerContainer = self.make_database(self.database_host)
        self.worker: DockerContainer | None = None

    def make_database(self, host: str) -> DockerContainer:
        """Start a PostgreSQL with the still empty database; `connect` waits for it."""
        deployment = self._deployment
        container = (
            DockerContainer(deployment.images.database)
            # What a killed container has written is in the machine's memory, and is there for the next one.
            .with_command(["postgres", "-c", "fsync=off"])
            .with_network(deployment.network)
            .with_network_aliases(host)
            .with_exposed_ports(5432)
            .with_envs(DATABASE=self.name, OWNER=self.name, SERVER_NAME=host)
            .with_volume_mapping(deployment.volume(f"{host}-password"), _CLIENT, "rw")
            .with_volume_mapping(deployment.volume(f"{host}-data"), _DATA, "rw")
        )
        return deployment.start(container)

    def start_worker(self, image: str) -> None:
        """Start the worker from this image; it makes its key where it has none yet."""
        deployment = self._deployment
        make = f"test -e {_KEYS}/{self.name}.key || pybroker certificate create {self.name} >/dev/null"
        container = (
            DockerContainer(
                image, entrypoint=["sh", "-c", f"{make} && exec {_WORKER}"], restart_policy=_POLICY
            )
            .with_network(deployment.network)
            .with_network_aliases(self.name)
            .with_envs(PYBROKER_DATABASE_URL=self._inner_url())
            .with_volume_mapping(deployment.volume(f"{self.database_host}-password"), _CLIENT, "ro")
            .with_volume_mapping(deployment.volume(f"{self.name}-keys"), _KEYS, "rw")
        )
        self.worker = deployment.start(container)

    def replace_worker(self, image: str) -> None:
        """Stop the worker in order, and start this image's in its place."""
        assert self.worker is not None
        wrapped(self.worker).stop(timeout=120)
        assert wrapped(self.worker).wait()["StatusCode"] == 0
        self.start_worker(image)

    def migrate(self, image: str) -> str:
        """Bring the schema to this image's version; return what `pybroker migrate` says."""
        deployment = self._deployment
        # It is one transaction, and a deadlock with the load leaves nothing behind.
        command = "pybroker migrate || pybroker migrate || pybroker migrate"
        container = (
            DockerContainer(image, entrypoint=["sh", "-c", command])
            .with_network(deployment.network)
            .with_envs(PYBROKER_DATABASE_URL=self._inner_url())
            .with_volume_mapping(deployment.volume(f"{self.database_host}-password"), _CLIENT, "ro")
        )
        return run_to_its_end(container)

    def move(self) -> None:
        """Restore a dump of the database on another server; the worker and everybody else are gone meanwhile."""
        assert self.worker is not None
        deployment = self._deployment
        wrapped(self.worker).stop(timeout=120)
        old, old_host = self.database, self.database_host
        self.database_host = f"{self.name}-moved"
        self.database = self.make_database(self.database_host)
        self.wait_for_database()
        site = f"user={self.name} dbname={self.name} sslmode=require"
        dump = f"pg_dump --no-owner --file /tmp/dump.sql 'host={old_host} passfile=/run/old/pgpass {site}'"
        restore = (
            "psql -qX -v ON_ERROR_STOP=1 -1 -f /tmp/dump.sql"
            f" 'host={self.database_host} passfile={_CLIENT}/pgpass {site}'"
        )
        container = (
            DockerContainer(deployment.images.database, entrypoint=["sh", "-c", f"{dump} && {restore}"])
            .with_network(deployment.network)
            .with_volume_mapping(deployment.volume(f"{old_host}-password"), "/run/old", "ro")
            .with_volume_mapping(deployment.volume(f"{self.database_host}-password"), _CLIENT, "ro")
        )
        run_to_its_end(container)
        wrapped(old).stop()

    def url(self) -> str:
        """The database's URL from outside, as its owner; the port is another one after a restart."""
        password = self._password()
        host = self.database.get_container_host_ip()
        port = self.database.get_exposed_port(5432)
        return f"postgresql://{self.name}:{password}@{host}:{port}/{self.name}?sslmode=require{_IMPATIENT}"

    def connect(self) -> psycopg.Connection[Any]:
        try:
            return psycopg.connect(self.url())
        except psycopg.OperationalError:
            raise
        except Exception as error:
            # While a container restarts it has no port.
            raise psycopg.OperationalError(str(error)) from error

    def log(self) -> str:
        assert self.worker is not None
        return str(wrapped(self.worker).logs(tail=30).decode())

    def execute(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        with self._session() as session:
            cursor = session.execute(query.encode(), arguments or None)
            return cursor.fetchall() if cursor.description is not None else []

    def version(self) -> str | None:
        """Return what the worker's `pybroker --version` says, or None: ask again."""
        assert self.worker is not None
        return say(self.worker, "pybroker", "--version")

    def certificate(self) -> str:
        """Return the worker's certificate, once it has made one."""
        assert self.worker is not None
        worker, path = self.worker, f"{_KEYS}/{self.name}.pem"

        def written() -> str | None:
            said = say(worker, "cat", path) or ""
            return said if "END CERTIFICATE" in said else None

        certificate: str = until(written, error=NotStartedError)
        return certificate

    def wait_for_database(self) -> None:
        self._session().close()

    def _session(self) -> psycopg.Connection[Any]:
        """Connect again until the server is there."""

        def connected() -> psycopg.Connection[Any] | None:
            with contextlib.suppress(psycopg.OperationalError):
                return self.connect()
            return None

        session: psycopg.Connection[Any] = until(connected, error=NotStartedError)
        return session

    def _inner_url(self) -> str:
        return (
            f"postgresql://{self.name}@{self.database_host}/{self.name}?passfile={_CLIENT}/pgpass"
            f"&sslmode=verify-full&sslrootcert={_CLIENT}/root.crt{_IMPATIENT}"
        )

    def _password(self) -> str:
        cached = self._deployment.passwords
        if self.database_host not in cached:
            pgpass = say(self.database, "cat", f"{_CLIENT}/pgpass")
            if pgpass is None:
                raise psycopg.OperationalError("no password was made yet")
            cached[self.database_host] = pgpass.strip().rpartition(":")[2]
        return cached[self.database_host]


class Deployment:
    """The network, three initiators and their target; everything is removed at the end."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.passwords: dict[str, str] = {}
        self._prefix = f"pybroker-test-{uuid.uuid4().hex[:8]}"
        self._stack = ExitStack()
        self._volumes: set[str] = set()

    def __enter__(self) -> Deployment:
        self._stack.callback(self._remove_volumes)
        self.network = self._stack.enter_context(Network())
        try:
            self._set_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def brokers(self) -> list[Broker]:
        return [*self.initiators, self.target]

    def volume(self, name: str) -> str:
        volume = f"{self._prefix}-{name}"
        self._volumes.add(volume)
        return volume

    def start(self, container: DockerContainer) -> DockerContainer:
        self._stack.callback(container.stop)
        return container.start()

    def _set_up(self) -> None:
        self.target = Broker("target", self)
        self.initiators = [Broker(name, self) for name in ("first", "second", "third")]
        for broker in self.brokers:
            broker.wait_for_database()
            migrate(broker.url())
            broker.start_worker(self.images.worker)
        define(self.initiators, self.target)
        certificates = {broker.name: broker.certificate() for broker in self.brokers}
        for broker in self.brokers:
            far = self.initiators if broker is self.target else [self.target]
            for name in (broker.name, *(other.name for other in far)):
                broker.execute("select broker.create_certificate(%s, %s, %s)", name, certificates[name], name)
            broker.execute(
                "select broker.create_endpoint('endpoint', %s, state => 'STARTED', certificate => %s)",
                PORT,
                broker.name,
            )
            for other in far:
                service = TARGET_SERVICE if other is self.target else service_of(other)
                broker.execute("select broker.grant('CONNECT', 'ENDPOINT', 'endpoint', %s)", other.name)
                broker.execute(
                    "select broker.create_route(%s, %s, service_name => %s)",
                    service,
                    f"tcp://{other.name}:{PORT}",
                    service,
                )

    def _remove_volumes(self) -> None:
        client = docker.from_env()
        try:
            for name in self._volumes:
                client.volumes.get(name).remove(force=True)
        finally:
            client.close()


def wrapped(container: DockerContainer) -> Container:
    return container.get_wrapped_container()


def run_to_its_end(container: DockerContainer) -> str:
    """Run a container whose command ends by itself, and return what it says."""
    with container:
        code = wrapped(container).wait()["StatusCode"]
        output = wrapped(container).logs().decode()
    assert code == 0, output
    return str(output)


def say(container: DockerContainer, *command: str) -> str | None:
    """Return what a command says in a container; None if it failed, or its output was lost, as happens on a busy machine."""
    code, output = wrapped(container).exec_run(list(command))
    return (output.decode() or None) if code == 0 else None


@contextlib.contextmanager
def cut(near: DockerContainer, far: DockerContainer) -> Iterator[None]:
    """Let the near container find no way to the far one any more, until the end of the block."""
    container = wrapped(far)
    container.reload()
    ((_, settings),) = container.attrs["NetworkSettings"]["Networks"].items()
    _set_route(near, "890b", settings["IPAddress"])
    try:
        yield
    finally:
        _set_route(near, "890c", settings["IPAddress"])


def _set_route(near: DockerContainer, request: str, address: str) -> None:
    """Run the request in a container that shares the near one's network, so that the near one gets no right of its own."""
    client = docker.from_env()
    try:
        client.containers.run(
            wrapped(near).image.id,
            ["-c", _ROUTE, request, address],
            entrypoint=["python"],
            network_mode=f"container:{wrapped(near).id}",
            user="0",
            cap_add=["NET_ADMIN"],
            remove=True,
        )
    finally:
        client.close()


def pause(container: DockerContainer) -> None:
    def is_frozen() -> bool:
        # A container whose processes come and go may escape the first attempts.
        with contextlib.suppress(docker.errors.APIError):
            wrapped(container).pause()
        wrapped(container).reload()
        return wrapped(container).status == "paused"

    until(is_frozen)
    time.sleep(1)
    wrapped(container).unpause()


def kill(container: DockerContainer) -> None:
    wrapped(container).kill()
    wrapped(container).start()


def restart(container: DockerContainer) -> None:
    wrapped(container).restart(timeout=120)
