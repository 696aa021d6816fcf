"""Two servers with a database each for what goes between them; and databases on the first, a new one for each measurement."""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
from psycopg import sql

from pybroker.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pybroker.embedded import EmbeddedServer
    from tests.bench.scenarios import Load, OldSnapshot
    from tests.brokers import Site

BATCH = 100
DIALOGS = 1_000
HOP_DIALOGS = 50
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
SETTINGS = (*DURABLE, "wal_sync_method", "shared_buffers", "max_wal_size", "server_version")
COUNT_MESSAGES = "select count(*) from broker_private.messages"

DEFINITIONS = f"""
select broker.create_message_type('order');
select broker.create_message_type('receipt');
select broker.create_contract('ordering', sent_by_initiator => '{{order}}', sent_by_target => '{{receipt}}');
select broker.create_queue('shop');
select broker.create_queue('warehouse');
select broker.create_service('//shop', 'shop');
select broker.create_service('//warehouse', 'warehouse', '{{ordering}}');
create table plain_rows (id bigint generated always as identity primary key, body bytea not null);
create table dialogs (number integer primary key, handle uuid not null);
insert into dialogs
  select n, broker.begin_dialog('//shop', '//warehouse', 'ordering') from generate_series(1, {DIALOGS}) n;
select broker.send(handle, 'order') from dialogs;
"""


class BenchmarkError(Exception):
    """What was measured can't be trusted, or could not be measured; the text says why."""


@dataclass(frozen=True)
class Stock:
    """What lies in the database when a measurement begins.

    For each second of a measurement there are so many rows that nobody finds it empty; what turns out too little is
    doubled, and the measurement made again. `beneath` are rows that are there besides.
    """

    name: str = "nothing"
    per_second: int = 0
    # Its parameters are body, bodies and turns: how many messages (or batches) each of the dialogs gets.
    fill: str = ""
    rows_a_turn: int = DIALOGS
    first: str = ""
    beneath: int = 0
    # The database that it is put into: one with the broker, or a peer's.
    base: str = "bench nothing"


@dataclass(frozen=True)
class Sample:
    """One measurement: messages a second; and for each message bytes of WAL and microseconds of the server's processors."""

    rate: float
    wal_bytes: float | None = None
    cpu_us: float | None = None
    # What this sample is to be compared with, where that is no other line.
    own_base: float | None = None


class Bench:
    """Where scenarios run."""

    def __init__(
        self, shop: Site, warehouse: Site, seconds: int, definitions: Mapping[str, Callable[[], str]]
    ) -> None:
        self.seconds = seconds
        self._definitions = definitions
        self._shop = shop
        self._warehouse = warehouse
        self._templates: set[str] = set()
        self._is_introduced = False

    @property
    def server(self) -> EmbeddedServer:
        return self._shop.server

    def settings(self) -> dict[str, str]:
        """Return the servers' settings, the same on both; those that make a commit durable must be on."""
        shop, warehouse = (
            {name: str(site.psql.value(f"show {name}")) for name in SETTINGS}
            for site in (self._shop, self._warehouse)
        )
        if shop != warehouse:
            raise BenchmarkError(f"the two servers differ: {shop} and {warehouse}")
        if off := [name for name in DURABLE if shop[name] != "on"]:
            raise BenchmarkError(f"{', '.join(off)} must be on: nothing else is worth comparing")
        return shop

    def between_servers(self) -> tuple[Site, Site]:
        """Return the two sites with their dialogs begun; their workers do not run."""
        if not self._is_introduced:
            shop = self._shop.psql
            shop.rows("create table dialogs (number integer primary key, handle uuid not null)")
            shop.rows(
                "insert into dialogs"
                " select n, broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
                " from generate_series(1, %s) n",
                HOP_DIALOGS,
            )
            shop.rows("select count(broker.send(handle, 'order')) from dialogs")
            self._warehouse.start_worker()
            self._shop.start_worker()
            while shop.value("select exists (select from broker_private.transmission_messages)"):
                self.watch(0.02)
            self.clear_hop()
            self._is_introduced = True
        return self._shop, self._warehouse

    def run(self, load: Load, stock: Stock) -> tuple[Sample, int, int]:
        """Let clients loose on a copy of the stock; return what they did, and the rows before and after."""
        self._begin(stock, load.body_bytes)
        before = self._value(load.count) if load.count else 0
        with self._held(load.held_groups), self._metered() as used:
            output = self._pgbench(load.script, load.clients, self.seconds, load.body_bytes)
        after = self._value(load.count) if load.count else 0
        self._drop("bench")
        processed = int(_figure(r"actually processed: (\d+)", output))
        # By what is in the table, not by transactions: one that found nothing received nothing.
        done = abs(after - before) if load.count else processed
        if not processed or not done:
            raise BenchmarkError(f"{load.name} did nothing:\n{output}")
        # pgbench's rate leaves out the time in which its clients connected.
        seconds = processed / _figure(r"tps = ([\d.]+)", output)
        return Sample(done / seconds, used["wal"] / done, used["cpu"] / done), before, after

    def run_under_an_old_snapshot(self, load: OldSnapshot) -> Sample:
        """Let clients loose beside a session whose snapshot is as old as their work."""
        self._begin(load.stock, load.body_bytes)
        seconds = load.times * self.seconds
        with self._connect("bench") as session, self._metered() as used:
            session.execute("begin isolation level repeatable read")
            session.execute("select count(*) from dialogs")
            output = self._pgbench(load.script, load.clients, seconds, load.body_bytes, progress=True)
        self._drop("bench")
        processed = int(_figure(r"actually processed: (\d+)", output))
        rates = [float(rate) for rate in re.findall(r"progress: .* s, ([\d.]+) tps", output)]
        fifth = max(1, len(rates) // 5)
        return Sample(
            sum(rates[-fifth:]) / fifth,
            used["wal"] / processed,
            used["cpu"] / processed,
            sum(rates[:fifth]) / fifth,
        )

    def watch(self, seconds: float) -> None:
        """Wait a moment, unless a worker has ended: then what is waited for never comes."""
        for site in (self._shop, self._warehouse):
            if site.worker is not None and site.worker.poll() is not None:
                raise BenchmarkError(f"the worker of {site.name} ended:\n{site.log.read_text()[-2000:]}")
        time.sleep(seconds)

    def clear_hop(self) -> int:
        """Stop both workers, empty the far queue, and return how many messages were in it."""
        for site in (self._shop, self._warehouse):
            site.stop_worker()
            site.worker = None
        received = _drain(self._warehouse.psql.connection)
        for site in (self._shop, self._warehouse):
            site.psql.rows("vacuum (analyze)")
        return received

    def _begin(self, stock: Stock, body_bytes: int) -> None:
        """Make the database `bench`, with this stock in it."""
        if stock.base not in self._templates:
            self._prepare(stock.base)
        depth = stock.beneath + stock.per_second * self.seconds
        template = f"bench {stock.name} {depth}"
        if template not in self._templates and depth:
            self._copy(stock.base, template)
            with self._connect(template) as connection:
                values = _values(body_bytes)
                rest = depth
                if stock.first:
                    connection.execute(stock.first.encode(), values)
                    rest -= stock.beneath
                connection.execute(stock.fill.encode(), {**values, "turns": -(-rest // stock.rows_a_turn)})
                connection.execute("vacuum (analyze)")
            self._templates.add(template)
        self._copy(template if depth else stock.base, "bench")

    def _prepare(self, base: str) -> None:
        self._copy("template1", base)
        if base != Stock.base:
            with self._connect(base) as connection:
                connection.execute(self._definitions[base]().encode())
        else:
            migrate(self.server.url(base))
            with self._connect(base) as connection:
                connection.execute(DEFINITIONS.encode())
                _drain(connection)
                connection.execute("vacuum (analyze)")
        self._templates.add(base)

    @contextmanager
    def _held(self, groups: int) -> Iterator[None]:
        with ExitStack() as sessions:
            for _ in range(groups):
                session = sessions.enter_context(self._connect("bench"))
                session.execute("begin")
                session.execute("select count(*) from broker.receive('warehouse', top => 1)")
            yield

    @contextmanager
    def _metered(self) -> Iterator[dict[str, float]]:
        """Yield a dictionary that has, afterwards, the bytes of WAL and the microseconds of processors that were used."""
        used: dict[str, float] = {}
        with self._connect("postgres") as session:
            where = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"
            wal, cpu = self._number(session, where), self._processor_seconds()
            yield used
            # A backend's time is counted once the server has seen it end.
            time.sleep(0.1)
            used["wal"] = self._number(session, where) - wal
            used["cpu"] = (self._processor_seconds() - cpu) * 1e6

    def _processor_seconds(self) -> float:
        first_line = (self.server.data_directory / "postmaster.pid").read_text().split("\n", 1)[0]
        server = psutil.Process(int(first_line))
        ended = server.cpu_times()
        seconds = ended.children_user + ended.children_system
        for child in server.children():
            try:
                times = child.cpu_times()
            except psutil.Error:
                continue
            seconds += times.user + times.system
        return float(seconds)

    def _pgbench(
        self, script_text: str, clients: int, seconds: int, body_bytes: int, *, progress: bool = False
    ) -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(script_text + "\n")
            script.flush()
            threads = min(clients, os.cpu_count() or 1)
            command = [
                str(self.server.binary("pgbench")), "--no-vacuum", "--protocol=prepared",
                f"--time={seconds}", f"--client={clients}", f"--jobs={threads}", f"--file={script.name}",
            ]  # fmt: skip
            if progress:
                command.append("--progress=1")
            # Just those that the script names, to keep the command line readable.
            for name, value in _variables(body_bytes).items():
                if re.search(rf":{name}\b", script_text):
                    command.append(f"--define={name}={value}")
            process = subprocess.Popen(
                [*command, self.server.url("bench")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                output, _ = process.communicate()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if process.returncode != 0:
            raise BenchmarkError(f"pgbench failed:\n{script_text[:500]}\n{output[-2000:]}")
        return output

    def _connect(self, database: str) -> closing[psycopg.Connection[Any]]:
        return closing(psycopg.connect(self.server.url(database), autocommit=True))

    def _value(self, query: str) -> int:
        with self._connect("bench") as connection:
            return int(self._number(connection, query))

    @staticmethod
    def _number(connection: psycopg.Connection[Any], query: str) -> float:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return float(row[0])

    def _copy(self, template: str, database: str) -> None:
        # Through the WAL: the copy's pages are newer than the checkpoint that dropping the last copy made, so
        # every measurement begins in the same state.
        self._drop(database)
        with self._connect("postgres") as connection:
            connection.execute(
                sql.SQL("create database {} template {} strategy wal_log").format(
                    sql.Identifier(database), sql.Identifier(template)
                )
            )

    def _drop(self, database: str) -> None:
        with self._connect("postgres") as connection:
            connection.execute(
                sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database))
            )


def body(size: int) -> bytes:
    """Return bytes that don't compress."""
    return random.Random(7).randbytes(size)


def _values(size: int) -> dict[str, Any]:
    return {"body": body(size), "bodies": [body(size)] * BATCH, "text": body(size).hex()[:size]}


def _variables(size: int) -> dict[str, str]:
    # Bodies go over the wire with each call, for PostgreSQL's own lines as for the broker's.
    content = body(size).hex()
    text = f'"{content[:size]}"'
    return {
        "body": f"\\x{content}",
        "bodies": "{" + ",".join([f'"\\\\x{content}"'] * BATCH) + "}",
        # For a queue of JSON, of the same length.
        "text": text,
        "texts": "{" + ",".join([text.replace('"', '\\"').join('""')] * BATCH) + "}",
    }


def _drain(connection: psycopg.Connection[Any]) -> int:
    """Receive all that is in the queue and return how much it was."""
    total = 0
    while True:
        row = connection.execute("select count(*) from broker.receive('warehouse', top => 1000)").fetchone()
        assert row is not None
        if row[0] == 0:
            return total
        total += row[0]


def _figure(pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    if found is None:
        raise BenchmarkError(f"pgbench said something new:\n{output}")
    return float(found[1])
