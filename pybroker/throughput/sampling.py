"""What is read from the servers while a cell runs, a few times a second."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec
import psutil

if TYPE_CHECKING:
    from pybroker.throughput.testbed import Bed, Server

PERIOD = 0.5

# From PostgreSQL 18 on the log's flushes are counted with all other input and output.
_FLUSHES_BEFORE_18 = "select wal_sync from pg_catalog.pg_stat_wal"
_FLUSHES = "select pg_catalog.sum(fsyncs)::bigint from pg_catalog.pg_stat_io where object = 'wal'"
_FLUSHES_MOVED = 180_000
_SAMPLE = """
    select
      pg_catalog.pg_current_wal_lsn() - '0/0'::pg_lsn as wal,
      ({flushes}) as flushes,
      (select pg_catalog.sum(c.total_fragments_sent) from broker.dm_broker_connections c) as left_here,
      (select pg_catalog.sum(c.total_sends) from broker.dm_broker_connections c) as batches,
      (select xact_commit from pg_catalog.pg_stat_database
       where datname = pg_catalog.current_database()) as commits,
      (select pg_catalog.count(*) from broker.dm_broker_activated_tasks) as readers,
      (select pg_catalog.array_agg(coalesce(a.wait_event_type || ':' || a.wait_event, 'running'))
       from pg_catalog.pg_stat_activity a
       where a.datname = pg_catalog.current_database() and a.state = 'active'
         and a.pid <> pg_catalog.pg_backend_pid()) as waits
    """


class Sample(msgspec.Struct, frozen=True):
    """One server at one moment.

    Attributes:
        at: Seconds of this machine's clock.
        server: Its name.
        wal_bytes: Written since the server was made; None where only processors were looked at.
        flushes: Of the server's log to its disk so far.
        commits: Transactions of the database so far, as the server's statistics have them.
        left_here: Messages that the worker has sent over its connections, as of a few seconds before.
        batches: Frames that they were in.
        readers: Activated tasks that run.
        waits: What each session that does something waits for; `running` if for nothing.
        server_cpu: Processor seconds of the server so far; None where nobody can tell.
        worker_cpu: The worker's.
        machine_cpu: Percent of this machine's processors that were busy since the last sample.
    """

    at: float
    server: str
    wal_bytes: int | None = None
    flushes: int | None = None
    commits: int | None = None
    left_here: int | None = None
    batches: int | None = None
    readers: int | None = None
    waits: list[str] = []
    server_cpu: float | None = None
    worker_cpu: float | None = None
    machine_cpu: float | None = None


class Busy(msgspec.Struct, frozen=True):
    """Processor seconds of this machine so far.

    Attributes:
        at: Seconds of this machine's clock.
        everybody: Of all programs, and what a hypervisor took.
        ours: Of servers and workers, of the test clients and of this command.
    """

    at: float
    everybody: float
    ours: float


class Sampler:
    """Takes samples of all servers in a thread of its own, in a `with` statement.

    Attributes:
        samples: What was taken so far.
        busy: What the machine did, at each mark.
    """

    def __init__(self, bed: Bed) -> None:
        self.samples: list[Sample] = []
        self.busy: list[Busy] = []
        self._bed = bed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what kept samples from being taken."""
        if self._error is not None:
            raise self._error

    def mark(self) -> None:
        """Note what processors have done so far: where the measured seconds begin and where they end.

        No session is needed for it. An overloaded server answers samples late, or once in a cell.
        """
        used = 0.0
        for server in self._bed.servers:
            cpu = server.cpu()
            used += sum(cpu.get(who, 0.0) for who in server.strangers)
            self.samples.append(
                Sample(time.time(), server.name, server_cpu=cpu.get("server"), worker_cpu=cpu.get("worker"))
            )
        if all(server.strangers for server in self._bed.servers):
            self.busy.append(Busy(time.time(), _everybody(), used + _own()))

    def seconds_without_new_readers(self) -> float:
        """Tell for how long the target has not got another reader."""
        mine = [sample for sample in self.samples if sample.server == self._bed.target.name]
        most, since = -1, time.time()
        for sample in mine:
            if sample.readers is not None and sample.readers > most:
                most, since = sample.readers, sample.at
        return time.time() - since if mine else 0.0

    def _run(self) -> None:
        sessions: list[tuple[Server, Any]] = []
        try:
            sessions += [(server, server.connect()) for server in self._bed.servers]
            version = sessions[0][1].info.server_version
            statement = _SAMPLE.format(
                flushes=_FLUSHES if version >= _FLUSHES_MOVED else _FLUSHES_BEFORE_18
            ).encode()
            psutil.cpu_percent()
            while not self._over.wait(PERIOD):
                busy = psutil.cpu_percent()
                self.samples += [_sample(server, session, statement, busy) for server, session in sessions]
        except BaseException as error:
            self._error = error
        finally:
            for _, session in sessions:
                session.close()


def _everybody() -> float:
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in names))


def _own() -> float:
    """Return what this command used and all that it started: Spark, and the test clients of this machine."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def _sample(server: Server, session: Any, statement: bytes, busy: float) -> Sample:
    wal, flushes, left_here, batches, commits, readers, waits = session.execute(statement).fetchone()
    cpu = server.cpu()
    return Sample(
        at=time.time(),
        server=server.name,
        wal_bytes=int(wal),
        flushes=flushes,
        commits=commits,
        left_here=None if left_here is None else int(left_here),
        batches=None if batches is None else int(batches),
        readers=readers,
        waits=waits or [],
        server_cpu=cpu.get("server"),
        worker_cpu=cpu.get("worker"),
        machine_cpu=busy,
    )
