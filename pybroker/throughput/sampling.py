"""What is read from the servers while a cell runs, a few times a second."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec
import psutil

if TYPE_CHECKING:
    from pybroker.throughput.testbed import Bed, Server

PERIOD = 0.5

_SAMPLE = """
    select
      pg_current_wal_lsn() - '0/0'::pg_lsn as wal,
      (select count(*) from broker.dm_broker_activated_tasks) as readers,
      (select array_agg(coalesce(a.wait_event_type || ':' || a.wait_event, 'running'))
       from pg_stat_activity a
       where a.datname = current_database() and a.state = 'active' and a.pid <> pg_backend_pid()) as waits
    """


class Sample(msgspec.Struct, frozen=True):
    """One server at one moment.

    Attributes:
        at: Seconds of this machine's clock.
        server: Its name.
        wal_bytes: Written since the server was made.
        readers: Activated tasks that run.
        waits: What each session that does something waits for; `running` if for nothing.
        server_cpu: Processor seconds of the server so far; None where nobody can tell.
        worker_cpu: The worker's.
        machine_cpu: Percent of this machine's processors that were busy since the last sample.
    """

    at: float
    server: str
    wal_bytes: int
    readers: int
    waits: list[str]
    server_cpu: float | None
    worker_cpu: float | None
    machine_cpu: float


class Sampler:
    """Takes samples of all servers in a thread of its own, in a `with` statement.

    Attributes:
        samples: What was taken so far.
    """

    def __init__(self, bed: Bed) -> None:
        self.samples: list[Sample] = []
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

    def seconds_without_new_readers(self) -> float:
        """Tell for how long the target has not got another reader."""
        mine = [sample for sample in self.samples if sample.server == self._bed.target.name]
        most, since = -1, time.time()
        for sample in mine:
            if sample.readers > most:
                most, since = sample.readers, sample.at
        return time.time() - since if mine else 0.0

    def _run(self) -> None:
        sessions: list[tuple[Server, Any]] = []
        try:
            sessions += [(server, server.connect()) for server in self._bed.servers]
            psutil.cpu_percent()
            while not self._over.wait(PERIOD):
                busy = psutil.cpu_percent()
                self.samples += [_sample(server, session, busy) for server, session in sessions]
        except BaseException as error:
            self._error = error
        finally:
            for _, session in sessions:
                session.close()


def _sample(server: Server, session: Any, busy: float) -> Sample:
    wal, readers, waits = session.execute(_SAMPLE).fetchone()
    cpu = server.cpu()
    return Sample(
        at=time.time(),
        server=server.name,
        wal_bytes=int(wal),
        readers=readers,
        waits=waits or [],
        server_cpu=cpu.get("server"),
        worker_cpu=cpu.get("worker"),
        machine_cpu=busy,
    )
