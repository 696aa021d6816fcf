"""The servers of a test: initiators and a target, a worker beside each."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psutil
import psycopg

from pybroker.demo.broker import Broker, free_ports
from pybroker.embedded import EmbeddedServer
from pybroker.throughput.objects import SERVICE, define, introduce, undefine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
        strangers: Which of `server` and `worker` are on this machine, and no children of this command; none
            where nobody can tell.
    """

    name: str
    url: str
    guid: str
    cpu: Callable[[], dict[str, float]] = field(default=dict)
    check: Callable[[], None] = field(default=lambda: None)
    strangers: tuple[str, ...] = ()

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
        quotas: Processors that each server and worker may use in a limited cell, such as `target worker`.
        limit: Puts the quotas in force, or lifts them.
    """

    initiators: Sequence[Server]
    target: Server
    cores: float
    is_secured: bool
    about: dict[str, str]
    quotas: Mapping[str, float] = field(default_factory=dict)
    limit: Callable[[bool], None] = field(default=lambda _: None)

    def with_initiators(self, count: int) -> Bed:
        """Return the same servers, of the initiators only the first."""
        return replace(self, initiators=self.initiators[:count])

    def target_cores(self, *, is_limited: bool) -> float:
        """Return how many processors the target and its worker may use."""
        mine = [cores for who, cores in self.quotas.items() if who.startswith("target ")]
        return sum(mine) if is_limited and mine else self.cores

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
        guids = {broker.name: define(broker.url, is_target=broker is target) for broker in brokers}
        introduce(
            brokers[:-1],
            target,
            {broker.name: broker.create_certificate() for broker in brokers},
            guids=guids,
            endpoint=endpoint,
            listener_ip="127.0.0.1",
        )
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
                # Its worker is a child of this command.
                strangers=("server",),
            )
            for broker in brokers
        ]
        yield Bed(servers[:-1], servers[-1], os.cpu_count() or 1, True, describe(servers[-1]))


@contextmanager
def urls(initiator_urls: Sequence[str], target_url: str, *, cores: float) -> Iterator[Bed]:
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
            guid = define(url, is_target=name == "target")
            stack.callback(undefine, url)
            servers.append(Server(name, url, guid))
        with servers[-1].connect() as connection:
            connection.execute("select broker.grant('SEND', 'SERVICE', %s, 'public')", [SERVICE])
        about = describe(servers[-1]) | {"dialogs": "not encrypted"}
        yield Bed(servers[:-1], servers[-1], cores, False, about)


def describe(target: Server) -> dict[str, str]:
    """Return the settings that a rate depends on."""
    settings = (
        "server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method",
        "shared_buffers",
    )  # fmt: skip
    with target.connect() as connection:
        return {
            name: connection.execute("select pg_catalog.current_setting(%s)", [name]).fetchone()[0]  # type: ignore[index]
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
