"""The servers of a test: initiators and a target, a worker beside each, the whitepaper's objects in them."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

import psutil
import psycopg

from pybroker.demo.broker import Broker, free_ports
from pybroker.embedded import EmbeddedServer
from pybroker.migrations import migrate
from pybroker.throughput.failures import ThroughputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SERVICE = "//MySSB.com/Lab/S_Test"
QUEUE = "MySSBLabTestQueue"
# Sessions: 50 clients an initiator, or the readers of a target; the worker's, ours.
_SETTINGS: dict[str, str | int | float | bool] = {"max_connections": "150"}


@dataclass(frozen=True)
class Server:
    """One database of the test.

    Attributes:
        name: `initiator1` to `initiator3`, or `target`.
        url: Its URL, good wherever Spark's tasks run.
        guid: Its service_broker_guid.
        cpu: Returns processor seconds so far of `server` and `worker`; empty where nobody can tell.
        check: Raises ThroughputError when its worker has ended.
    """

    name: str
    url: str
    guid: str
    cpu: Callable[[], dict[str, float]] = field(default=dict)
    check: Callable[[], None] = field(default=lambda: None)

    def connect(self) -> psycopg.Connection[Any]:
        """Open a session in which each statement commits by itself."""
        return psycopg.connect(self.url, autocommit=True, application_name="pybroker throughput")


@dataclass(frozen=True)
class Bed:
    """Initiators and a target that reach each other.

    Attributes:
        initiators: One to three.
        target: Where all messages go.
        cores: Processors that the target may use.
        is_secured: Whether bindings are there for dialogs with ENCRYPTION = ON.
        about: What the report says of the servers.
    """

    initiators: Sequence[Server]
    target: Server
    cores: int
    is_secured: bool
    about: dict[str, str]

    @property
    def servers(self) -> list[Server]:
        """All of them."""
        return [*self.initiators, self.target]

    def check(self) -> None:
        """Do nothing while all workers run.

        Raises:
            ThroughputError: One has ended.
        """
        for server in self.servers:
            server.check()


def run_script(connection: psycopg.Connection[Any], name: str) -> None:
    """Run a .sql file of this package."""
    connection.execute(resources.files("pybroker.throughput").joinpath(name).read_bytes())


@contextmanager
def embedded(initiators: int, *, version: int, endpoint: str) -> Iterator[Bed]:
    """Start embedded servers and a worker for each; at the end, stop and remove everything.

    Raises:
        ThroughputError: A worker does not serve.
        EmbeddedServerError: A server does not start.
    """
    names = [*(f"initiator{number}" for number in range(1, initiators + 1)), "target"]
    ports = free_ports(len(names))
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(Broker(name, name, port, EmbeddedServer(version=version, settings=_SETTINGS)))
            for name, port in zip(names, ports, strict=True)
        ]
        target = brokers[-1]
        guids = {broker.name: _define(broker.url, is_target=broker is target) for broker in brokers}
        certificates = {broker.name: broker.create_certificate() for broker in brokers}
        for broker in brokers:
            with broker.connect() as connection:
                _listen(connection, broker, certificates[broker.name], endpoint)
        for broker in brokers[:-1]:
            for own, far in ((broker, target), (target, broker)):
                with own.connect() as connection:
                    _introduce(connection, far.name, certificates[far.name])
                    _route(connection, far.name, guids[far.name], far.address)
            _bind(broker, target)
        for broker in brokers:
            broker.start_worker()
        for broker in brokers:
            broker.wait_for_worker()
        servers = [
            Server(
                broker.name,
                broker.url,
                guids[broker.name],
                cpu=_Processes(broker).seconds,
                check=broker.check_worker,
            )
            for broker in brokers
        ]
        yield Bed(servers[:-1], servers[-1], os.cpu_count() or 1, True, _about(servers[-1]))


@contextmanager
def urls(initiator_urls: Sequence[str], target_url: str, *, cores: int) -> Iterator[Bed]:
    """Use databases that workers serve already; make the objects, and drop them at the end.

    Databases of one worker need nothing for that; others need endpoints that trust each other, and the
    initiators a route to `//MySSB.com/Lab/S_Test` of the target's broker, the target one back.

    Raises:
        ThroughputError: An object of the test's names is there already.
    """
    names = [f"initiator{number}" for number in range(1, len(initiator_urls) + 1)]
    with ExitStack() as stack:
        servers = []
        for name, url in [*zip(names, initiator_urls, strict=True), ("target", target_url)]:
            guid = _define(url, is_target=name == "target")
            stack.callback(_undefine, url)
            servers.append(Server(name, url, guid))
        with servers[-1].connect() as connection:
            connection.execute("select broker.grant('SEND', 'SERVICE', %s, 'public')", [SERVICE])
        yield Bed(servers[:-1], servers[-1], cores, False, _about(servers[-1]))


def _define(url: str, *, is_target: bool) -> str:
    """Make the objects, and return the broker's guid."""
    migrate(url)
    with psycopg.connect(url) as connection:
        found = connection.execute(
            """
            select name from broker.services where name = %s
            union all select nspname from pg_namespace where nspname = 'lab'
            """,
            [SERVICE],
        ).fetchone()
        if found is not None:
            raise ThroughputError(
                f"{connection.info.dbname} has {found[0]!r} already: give databases that are empty."
            )
        run_script(connection, "common.sql")
        run_script(connection, "target.sql" if is_target else "initiator.sql")
        if is_target:
            connection.execute(
                """
                select broker.alter_queue(
                  %s, activation_procedure => 'lab.test_queue', execute_as => 'SELF', max_queue_readers => 1
                )
                """,
                [QUEUE],
            )
        row = connection.execute("select service_broker_guid::text from broker.databases").fetchone()
        assert row is not None  # noqa: S101
        return str(row[0])


def _undefine(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """
            select broker.end_conversation(conversation_handle, cleanup => true)
            from broker.conversation_endpoints
            """
        )
        connection.execute("select broker.drop_service(%s)", [SERVICE])
        connection.execute("select broker.drop_queue(%s)", [QUEUE])
        connection.execute("drop schema lab cascade")


def _listen(connection: psycopg.Connection[Any], broker: Broker, pem: str, endpoint: str) -> None:
    connection.execute("select broker.create_certificate(%s, %s, current_user)", [broker.name, pem])
    connection.execute(
        """
        select broker.create_endpoint(
          'Endpoint_SRPerf_1', %s, state => 'STARTED', listener_ip => '127.0.0.1', certificate => %s,
          encryption => %s
        )
        """,
        [broker.port, broker.name, endpoint],
    )


def _introduce(connection: psycopg.Connection[Any], name: str, pem: str) -> None:
    connection.execute("select broker.create_certificate(%s, %s, %s)", [name, pem, name])
    connection.execute("select broker.grant('CONNECT', 'ENDPOINT', 'Endpoint_SRPerf_1', %s)", [name])


def _route(connection: psycopg.Connection[Any], name: str, guid: str, address: str) -> None:
    connection.execute(
        "select broker.create_route(%s, %s, service_name => %s, broker_instance => %s)",
        [f"Test_{name}", address, SERVICE, guid],
    )


def _bind(initiator: Broker, target: Broker) -> None:
    """Let dialogs with ENCRYPTION = ON go out as full security wants it, and others as everybody's."""
    with initiator.connect() as connection:
        connection.execute(
            "select broker.create_remote_service_binding(%s, %s, %s)",
            [f"Test_{target.name}", SERVICE, target.name],
        )
    with target.connect() as connection:
        for sender in (initiator.name, "public"):
            connection.execute("select broker.grant('SEND', 'SERVICE', %s, %s)", [SERVICE, sender])


def _about(target: Server) -> dict[str, str]:
    settings = (
        "server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method",
        "shared_buffers",
    )  # fmt: skip
    with target.connect() as connection:
        return {
            name: connection.execute("select current_setting(%s)", [name]).fetchone()[0]  # type: ignore[index]
            for name in settings
        }


class _Processes:
    """Processor seconds of a server with all its sessions, and of its worker."""

    def __init__(self, broker: Broker) -> None:
        with broker.connect() as connection:
            session = psutil.Process(connection.info.backend_pid)
            postmaster = session.parent()
        assert postmaster is not None  # noqa: S101
        self._postmaster = postmaster
        self._worker = psutil.Process(broker.worker_id)

    def seconds(self) -> dict[str, float]:
        return {"server": _seconds(self._postmaster), "worker": _seconds(self._worker)}


def _seconds(process: psutil.Process) -> float:
    """Return what a process, its children and those that have ended have used."""
    try:
        own = process.cpu_times()
        # Of children that were waited for the parent knows; those that live are asked.
        return sum(own[:4]) + sum(_own_seconds(child) for child in process.children())
    except psutil.NoSuchProcess:
        return 0.0


def _own_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
