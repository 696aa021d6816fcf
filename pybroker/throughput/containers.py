"""The servers of a test as containers, one for each PostgreSQL and each worker, with processor quotas."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from docker.client import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound
from psycopg import sql
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from pybroker.throughput.failures import ThroughputError
from pybroker.throughput.objects import define, introduce
from pybroker.throughput.testbed import Bed, Server, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docker.models.containers import Container

    from pybroker.throughput.equipment import Equipment

LABEL = "pybroker.throughput"
_LOOPBACK = "127.0.0.1"
_PORT, _DATABASE_PORT = 4022, 5432
_ROLE = "broker"
# Seconds; microseconds.
_START, _POLL, _CHECK_PERIOD = 120.0, 0.1, 2.0
_QUOTA_PERIOD = 100_000
# The first attempt may come before the far side listens, and the next is not to come a minute later.
_WORKER = "pybroker worker --reconnect-after 0.5 --retry-connect-after 1"
_SETTINGS = ("max_connections=200",)
_SHARED_MEMORY = "256m"


_logger = logging.getLogger(__name__)
_removing = Retrying(
    retry=retry_if_exception_type(APIError), wait=wait_fixed(0.5), stop=stop_after_delay(10), reraise=True
)


def require_engine() -> None:
    """Refuse where no engine answers.

    Raises:
        ThroughputError: With what the engine's client says.
    """
    _client().close()


@contextmanager
def containers(initiators: int, *, version: int, endpoint: str, equipment: Equipment) -> Iterator[Bed]:
    """Start the containers on a network of their own; at the end, remove everything.

    The servers' ports are published on this machine's loopback interface.

    Raises:
        ThroughputError: There is no engine or image, or a server or worker does not start.
    """
    run = f"pybroker-throughput-{secrets.token_hex(4)}"
    client = _client()
    try:
        yield from _started(_Engine(client, run), initiators, version, endpoint, equipment)
    except ImageNotFound as error:
        raise ThroughputError(
            f"{error.explanation}. The worker's image is built by"
            " `docker build --file docker/worker.Dockerfile --tag pybroker-worker .`"
        ) from error
    except APIError as error:
        raise ThroughputError(f"The Docker engine refused: {error.explanation or error}") from error
    finally:
        try:
            _remove(client, run)
        finally:
            client.close()


def _client() -> DockerClient:
    try:
        # A connection for each thread that stops or limits a container at the same time as others.
        return DockerClient.from_env(max_pool_size=16)
    except DockerException as error:
        raise ThroughputError(f"No Docker engine answers: {error}") from error


def _started(
    engine: _Engine, initiators: int, version: int, endpoint: str, equipment: Equipment
) -> Iterator[Bed]:
    names = [*(f"initiator{number}" for number in range(1, initiators + 1)), "target"]
    engine.make_network()
    image = equipment.postgres_image.format(version=version)
    peers = [_Peer(name, engine, image, equipment.worker_image) for name in names]
    target = peers[-1]
    # One after the other: Alembic runs one migration at a time in a process.
    guids = {peer.name: peer.prepare() for peer in peers}
    certificates = {peer.name: peer.certificate() for peer in peers}
    with ThreadPoolExecutor(2 * len(peers)) as pool:
        introduce(peers[:-1], target, certificates, guids=guids, endpoint=endpoint, listener_ip="ALL")
        servers = [
            Server(
                peer.name,
                peer.url,
                guids[peer.name],
                cpu=peer.seconds(),
                check=peer.check,
                strangers=("server", "worker"),
            )
            for peer in peers
        ]
        about = describe(servers[-1])
        found = int(about["server_version"].partition(".")[0])
        if found != version:
            raise ThroughputError(f"{image} is PostgreSQL {found}: give --versions {found} for it.")
        quotas = {who: cores for name in names for who, cores in equipment.quotas(name).items()}
        by_name = {
            who: container
            for peer in peers
            for who, container in ((f"{peer.name} server", peer.server), (f"{peer.name} worker", peer.worker))
        }

        def limit(is_limited: bool) -> None:
            whole = float(os.cpu_count() or 1)
            wanted = [(by_name[who], cores if is_limited else whole) for who, cores in quotas.items()]
            list(pool.map(lambda one: _set_quota(*one), wanted))

        limit(False)
        shown = {f"quota of the {who}": f"{cores:g} cores" for who, cores in quotas.items()}
        yield Bed(
            servers[:-1], servers[-1], os.cpu_count() or 1, True, about | shown, quotas=quotas, limit=limit
        )


class _Engine:
    """The network of a test, and the containers on it."""

    def __init__(self, client: DockerClient, run: str) -> None:
        self._client = client
        self.run = run

    def make_network(self) -> None:
        self._client.networks.create(self.run, labels={LABEL: self.run})

    def start(self, name: str, image: str, **options: Any) -> Container:
        return self._client.containers.run(
            image,
            detach=True,
            name=f"{self.run}-{name}",
            network=self.run,
            labels={LABEL: self.run},
            **options,
        )


class _Peer:
    """A PostgreSQL and the worker beside it."""

    port = _PORT

    def __init__(self, name: str, engine: _Engine, postgres_image: str, worker_image: str) -> None:
        self.name = name
        self._engine = engine
        self._worker_image = worker_image
        self._password = secrets.token_hex(16)
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        self.server = engine.start(
            f"{name}-server",
            postgres_image,
            command=["postgres", *settings],
            environment={"POSTGRES_PASSWORD": self._password},
            ports={f"{_DATABASE_PORT}/tcp": (_LOOPBACK, None)},
            shm_size=_SHARED_MEMORY,
        )
        self.worker: Container
        self._published = 0
        self._checked = 0.0

    @property
    def url(self) -> str:
        """The database's URL for this machine, as its owner, who is no superuser."""
        return self._url(_ROLE, self.name, _LOOPBACK, self._published)

    @property
    def address(self) -> str:
        """Where the other workers reach this one."""
        return f"tcp://{self._engine.run}-{self.name}-worker:{_PORT}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a session of the owner's, in which each statement commits by itself."""
        return psycopg.connect(self.url, autocommit=True)

    def prepare(self) -> str:
        """Make role, database and objects, and start the worker; return the broker's guid."""
        self._published = self._find_port()
        with self._wait_for_server() as connection:
            role, database = sql.Identifier(_ROLE), sql.Identifier(self.name)
            connection.execute(
                sql.SQL("create role {} login password {}").format(role, sql.Literal(self._password))
            )
            connection.execute(sql.SQL("create database {} owner {}").format(database, role))
        guid = define(self.url, is_target=self.name == "target")
        make = f'pybroker certificate create {self.name} --key-directory "$PYBROKER_KEY_DIRECTORY"'
        inner = self._url(_ROLE, self.name, f"{self._engine.run}-{self.name}-server", _DATABASE_PORT)
        self.worker = self._engine.start(
            f"{self.name}-worker",
            self._worker_image,
            entrypoint=["sh", "-c", f"{make} >/dev/null && exec {_WORKER}"],
            command=[],
            environment={"PYBROKER_DATABASE_URL": inner},
        )
        return guid

    def certificate(self) -> str:
        """Return the worker's certificate once it has made one."""
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline:
            self.check()
            code, output = self.worker.exec_run(
                ["sh", "-c", f'cat "$PYBROKER_KEY_DIRECTORY/{self.name}.pem"'], stderr=False
            )
            if code == 0 and b"END CERTIFICATE" in output:
                return str(output.decode())
            time.sleep(_POLL)
        raise ThroughputError(f"The worker of {self.name} has made no certificate. {_log(self.worker)}")

    def check(self) -> None:
        """Do nothing while server and worker run.

        Raises:
            ThroughputError: One has ended.
        """
        # Whoever waits asks all the time, and the engine's answers cost what the servers need.
        if time.monotonic() - self._checked < _CHECK_PERIOD:
            return
        self._checked = time.monotonic()
        for container in (self.server, self.worker):
            container.reload()
            if container.status != "running":
                raise ThroughputError(f"{container.name} has ended. {_log(container)}")

    def seconds(self) -> Callable[[], dict[str, float]]:
        """Return what tells the processor seconds that server and worker have used."""
        usages = {"server": _Usage(self.server), "worker": _Usage(self.worker)}

        def read() -> dict[str, float]:
            found = {who: usage.seconds() for who, usage in usages.items()}
            return {who: seconds for who, seconds in found.items() if seconds is not None}

        return read

    def _url(self, role: str, database: str, host: str, port: int) -> str:
        return f"postgresql://{role}:{self._password}@{host}:{port}/{database}"

    def _find_port(self) -> int:
        self.server.reload()
        bindings = self.server.ports.get(f"{_DATABASE_PORT}/tcp")
        if not bindings:
            raise ThroughputError(f"The server of {self.name} has ended. {_log(self.server)}")
        return int(bindings[0]["HostPort"])

    def _wait_for_server(self) -> psycopg.Connection[tuple[Any, ...]]:
        deadline = time.monotonic() + _START
        while True:
            try:
                return psycopg.connect(
                    self._url("postgres", "postgres", _LOOPBACK, self._published), autocommit=True
                )
            except psycopg.OperationalError as error:
                self.server.reload()
                if self.server.status != "running" or time.monotonic() > deadline:
                    raise ThroughputError(
                        f"The server of {self.name} does not start: {error} {_log(self.server)}"
                    ) from error
                time.sleep(_POLL)


def _remove(client: DockerClient, run: str) -> None:
    """Remove what the run has made, found by its label: the start may have been interrupted anywhere."""
    label = {"label": f"{LABEL}={run}"}
    found = client.containers.list(all=True, filters=label)
    with ThreadPoolExecutor(max(1, len(found))) as pool:
        list(pool.map(lambda container: container.remove(force=True, v=True), found))
    for network in client.networks.list(filters=label):
        try:
            _removing(network.remove)
        except APIError as error:
            # An engine may go on counting a container that is no more, until it is started again.
            _logger.warning("The network %s is left: %s", network.name, error.explanation)


def _set_quota(container: Container, cores: float) -> None:
    container.update(cpu_period=_QUOTA_PERIOD, cpu_quota=int(cores * _QUOTA_PERIOD))


class _Usage:
    """Processor seconds of a container, read from its control group.

    The engine is asked for a figure once a second at most, and not always answers.
    """

    def __init__(self, container: Container) -> None:
        self._file: Path | None = None
        container.reload()
        # Where the engine runs on another machine, in a virtual one too, the process is not here.
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{container.attrs['State']['Pid']}/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                if container.id in path and "cpuacct" in controllers.split(","):
                    self._file = Path(f"/sys/fs/cgroup/{controllers}{path}/cpuacct.usage")
                elif container.id in path and not controllers and self._file is None:
                    self._file = Path(f"/sys/fs/cgroup{path}/cpu.stat")

    def seconds(self) -> float | None:
        """Return them, or None where nobody can tell."""
        if self._file is None:
            return None
        try:
            content = self._file.read_text()
        except OSError:
            return None
        if self._file.name == "cpu.stat":
            return int(content.split()[1]) / 1e6
        return int(content) / 1e9


def _log(container: Container) -> str:
    return f"Its last words: {container.logs(tail=15).decode(errors='replace').strip()}"
