"""`python -m tests.bench.idle`: what servers that have nothing to do cost, each with a worker of its own.

Processor time is the kernel's, of the workers and of all processes of their servers; PostgreSQL counts the
transactions. A second row is of the same servers without workers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg

from pybroker.embedded import EmbeddedServer
from tests.conftest import migrated_database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conftest import Database

SETTLE_SECONDS = 15
# It finds much to do in new databases, and nothing in idle ones.
SETTINGS = {"autovacuum": "off"}
READY_SECONDS = 60


@dataclass(frozen=True)
class Reading:
    """What was counted until now, of all servers together."""

    worker_seconds: float
    server_seconds: float
    transactions: int
    written_bytes: int

    def __sub__(self, other: Reading) -> Reading:
        return Reading(
            self.worker_seconds - other.worker_seconds,
            self.server_seconds - other.server_seconds,
            self.transactions - other.transactions,
            self.written_bytes - other.written_bytes,
        )


def _processes(server: EmbeddedServer) -> Iterator[psutil.Process]:
    first = psutil.Process(int((Path(server.data_directory) / "postmaster.pid").read_text().split()[0]))
    yield first
    yield from first.children(recursive=True)


def _seconds(processes: Iterator[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        times = process.cpu_times()
        # A backend that has ended is in its parent's.
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _read(
    servers: Sequence[EmbeddedServer], databases: Sequence[Database], workers: Sequence[psutil.Process]
) -> Reading:
    transactions = written = 0
    server_seconds = sum(_seconds(_processes(server)) for server in servers)
    worker_seconds = _seconds(iter(workers))
    for database in databases:
        with psycopg.connect(database.url, autocommit=True) as session:
            row = session.execute(
                "select xact_commit + xact_rollback, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
                " from pg_stat_database where datname = current_database()"
            ).fetchone()
        assert row is not None
        transactions += row[0]
        written += row[1]
    return Reading(worker_seconds, server_seconds, transactions, written)


def _show(name: str, counted: Reading, pairs: int, seconds: float) -> None:
    sys.stdout.write(
        f"{name}: {(counted.worker_seconds + counted.server_seconds) / seconds:.2%} of a core"
        f" (workers {counted.worker_seconds / seconds:.2%}, servers {counted.server_seconds / seconds:.2%}),"
        f" {counted.transactions / seconds / pairs:.1f} transactions and"
        f" {counted.written_bytes / seconds / pairs:.0f} bytes of WAL a second for each server\n"
    )
    sys.stdout.flush()


def _wait_until_ready(log: Path, worker: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while "worker_ready" not in log.read_text():
        if worker.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the worker is not ready:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(prog="tests.bench.idle", description=__doc__)
    parser.add_argument("--pairs", type=int, default=4, help="servers, each with a worker")
    parser.add_argument("--seconds", type=float, default=60, help="that are counted, after some to settle")
    given = parser.parse_args()
    with ExitStack() as stack:
        servers = [
            stack.enter_context(EmbeddedServer(listen=True, settings=SETTINGS)) for _ in range(given.pairs)
        ]
        databases = [migrated_database(server, "idle", with_shop=True) for server in servers]
        for database in databases:
            # Else it is autovacuum that is measured.
            with psycopg.connect(database.url, autocommit=True) as session:
                session.execute("vacuum (freeze, analyze)")
                session.execute("checkpoint")
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("without workers", "with workers"):
            workers = []
            if name == "with workers":
                for number, database in enumerate(databases):
                    log = logs / str(number)
                    with log.open("wb") as output:
                        command = [sys.executable, "-m", "pybroker", "worker", "--database-url", database.url]
                        worker = subprocess.Popen(command, stdout=output, stderr=output)
                    stack.callback(worker.wait)
                    stack.callback(worker.kill)
                    _wait_until_ready(log, worker)
                    workers.append(psutil.Process(worker.pid))
            time.sleep(SETTLE_SECONDS)
            before, started = _read(servers, databases, workers), time.monotonic()
            time.sleep(given.seconds)
            counted, seconds = _read(servers, databases, workers) - before, time.monotonic() - started
            _show(name, counted, given.pairs, seconds)


if __name__ == "__main__":
    main()
