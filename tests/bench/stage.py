"""Two servers with a database each for what goes between them; and databases on the first, a new one for each measurement."""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pybroker.migrations import migrate
from tests.bench.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from tests.bench.loads import Load
    from tests.bench.profiles import Profiler
    from tests.brokers import Site

T = TypeVar("T")

BATCH = 100
DIALOGS = 1_000
# A new session compiles functions and makes plans, which a lasting one does not: what it does at first is left out.
WARM_UP_SECONDS = 1
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
# The same on all servers of a run.
SETTINGS = (
    *DURABLE, "wal_sync_method", "shared_buffers", "max_wal_size", "server_version", "checkpoint_timeout",
    "autovacuum", "wal_compression", "data_checksums",
)  # fmt: skip
COUNT_MESSAGES = "select count(*) from broker_private.messages"

DEFINITIONS = """
select broker.create_message_type('order');
select broker.create_message_type('receipt');
select broker.create_contract('ordering', sent_by_initiator => '{order}', sent_by_target => '{receipt}');
select broker.create_queue('shop');
select broker.create_queue('warehouse');
select broker.create_service('//shop', 'shop');
select broker.create_service('//warehouse', 'warehouse', '{ordering}');
create table plain_rows (id bigint generated always as identity primary key, body bytea not null);
create table dialogs (number integer primary key, handle uuid not null);
"""
RETENTION = """
select broker.alter_queue('shop', retention => true);
select broker.alter_queue('warehouse', retention => true);
"""
# As an application would have it: its sessions are no superuser's, who may do anything.
CLERK = "bench_clerk"
RIGHTS = f"""
create role {CLERK};
grant select on dialogs to {CLERK};
select broker.grant('RECEIVE', 'QUEUE', 'shop', '{CLERK}');
select broker.grant('RECEIVE', 'QUEUE', 'warehouse', '{CLERK}');
select broker.grant('SEND', 'SERVICE', '//warehouse', '{CLERK}');
select broker.grant('SEND', 'SERVICE', '//shop', '{CLERK}');
"""
# Ten services of the shop's, so that the warehouse's dialogs have ten levels.
PRIORITIES = """
select broker.alter_broker(honor_broker_priority => true);
select broker.create_service('//shop ' || level, 'shop') from generate_series(1, 10) level;
select broker.create_broker_priority('level ' || level, remote_service_name => '//shop ' || level, priority_level => level)
from generate_series(1, 10) level;
"""


class BenchmarkError(Exception):
    """What was measured can't be trusted, or could not be measured; the text says why."""


@dataclass(frozen=True)
class BrokerBase:
    """A database with the broker: so many open dialogs, and what else it has."""

    dialogs: int = DIALOGS
    also: str = ""
    # The service that begins each dialog; an expression over its number n.
    initiator: str = "'//shop'"


BROKER_BASES = {
    "bench nothing": BrokerBase(),
    "bench 7,500 dialogs": BrokerBase(7_500),
    "bench 20,000 dialogs": BrokerBase(20_000),
    "bench 100,000 dialogs": BrokerBase(100_000),
    "bench retention": BrokerBase(also=RETENTION),
    "bench rights": BrokerBase(also=RIGHTS),
    "bench priorities": BrokerBase(also=PRIORITIES, initiator="'//shop ' || 1 + n % 10"),
}


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
    # What lies before it, or after it: `beneath` messages.
    first: str = ""
    last: str = ""
    beneath: int = 0
    # The database that it is put into: one with the broker, or a peer's.
    base: str = "bench nothing"


@dataclass(frozen=True)
class Sample:
    """One measurement: messages a second; for each message bytes of WAL and microseconds of processors.

    `cpu_us` is of all servers that take part, `worker_us` of all workers. `waits` says what the sessions at work were seen waiting for, each
    as a part of all that was seen. `notes` are other figures, with their units in their names. `curve` is the rate in each second, where it may fall.
    """

    rate: float
    wal_bytes: float | None = None
    cpu_us: float | None = None
    # What this sample is to be compared with, where that is no other line.
    own_base: float | None = None
    worker_us: float | None = None
    waits: dict[str, float] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    # What part of all processors other programs used meanwhile.
    others: float = 0.0


class Bench:
    """Where scenarios run.

    Attributes:
        shop, warehouse: Two sites that reach each other; their workers do not run.
        directory: For files of what is started besides.
        stack: What is started besides is closed with it.
        server_settings: What a server that is started besides is to be told.
        seconds: How long clients run.
        profiler: Looks closely at what is measured, if it is to be.
    """

    def __init__(
        self,
        sites: tuple[Site, Site],
        directory: Path,
        stack: ExitStack,
        *,
        seconds: int,
        definitions: Mapping[str, Callable[[], str]],
        server_settings: Mapping[str, str],
    ) -> None:
        self.shop, self.warehouse = sites
        self.directory = directory
        self.stack = stack
        self.seconds = seconds
        self.server_settings = server_settings
        self.profiler: Profiler | None = None
        self._definitions = definitions
        self._templates: set[str] = set()
        self._parts: dict[type, Any] = {}
        self._guest: tuple[str, Any] | None = None
        self._guests = stack.enter_context(ExitStack())

    def part(self, kind: type[T]) -> T:
        """Return the one object of this class, made of the bench when it is first asked for."""
        if kind not in self._parts:
            self._parts[kind] = kind(self)  # type: ignore[call-arg]
        found: T = self._parts[kind]
        return found

    def guest(self, name: str, started: Callable[[], AbstractContextManager[T]]) -> T:
        """Return what has been started under this name; what another scenario has started is closed first."""
        if self._guest is None or self._guest[0] != name:
            self.dismiss()
            self._guest = name, self._guests.enter_context(started())
        found: T = self._guest[1]
        return found

    def dismiss(self) -> None:
        """Close what runs besides, so that it takes nothing from what is measured next."""
        self._guest = None
        self._guests.close()

    @property
    def server(self) -> EmbeddedServer:
        return self.shop.server

    def settings(self) -> dict[str, str]:
        """Return the servers' settings, the same on both; those that make a commit durable must be on."""
        shop, warehouse = (
            settings_of(site.psql.connection, (*SETTINGS, "max_connections", *self.server_settings))
            for site in (self.shop, self.warehouse)
        )
        if shop != warehouse:
            raise BenchmarkError(f"the two servers differ: {shop} and {warehouse}")
        return shop

    def check(self, name: str, session: psycopg.Connection[Any]) -> None:
        """Refuse a server that was started besides, unless it is set like the bench's own, but for what it needs itself."""
        found, own = settings_of(session), settings_of(self.shop.psql.connection)
        if found != own:
            raise BenchmarkError(f"the server of {name} differs: {found} and {own}")

    def run(self, load: Load, stock: Stock) -> tuple[Sample, int, int]:
        """Let clients loose on a copy of the stock; return what they did, and the rows before and after."""
        self.begin(stock, load.body_bytes)
        before = self.value(load.count) if load.count else 0
        with (
            self.profiled(),
            self._held(load.held_groups),
            started_pgbench(
                self.server, self._url_as(load.role), load.script, load.clients, load.body_bytes,
                f"--time={WARM_UP_SECONDS + self.seconds}", f"--progress={WARM_UP_SECONDS}",
            ) as process,
        ):  # fmt: skip
            output = warmed_up(process)
            with self.metered() as used, self._checkpoint(is_wanted=load.is_after_checkpoint):
                started = time.perf_counter()
                output += finish_pgbench(process, load.script)
                seconds = time.perf_counter() - started
        after = self.value(load.count) if load.count else 0
        self.drop("bench")
        processed = int(figure(PROCESSED, output))
        # By what is in the table, not by transactions: one that found nothing received nothing.
        done = abs(after - before) if load.count else processed
        if not processed or not done:
            raise BenchmarkError(f"{load.name} did nothing:\n{output}")
        rate = done / processed * warm_rate(output)
        return used.sample(rate * seconds, rate), before, after

    def _url_as(self, role: str) -> str:
        url = self.server.url("bench")
        return make_conninfo(url, options=f"-c role={role}") if role else url

    def begin(self, stock: Stock, body_bytes: int) -> None:
        """Make the database `bench`, with this stock in it."""
        self.dismiss()
        if stock.base not in self._templates:
            self._prepare(stock.base)
        depth = stock.beneath + stock.per_second * (WARM_UP_SECONDS + self.seconds)
        template = f"bench {stock.name} {depth} {body_bytes}"
        if template not in self._templates and depth:
            self._copy(stock.base, template)
            with self.connect(template) as connection:
                values = _values(body_bytes)
                rest = depth
                if stock.first:
                    connection.execute(stock.first.encode(), values)
                if stock.first or stock.last:
                    rest -= stock.beneath
                connection.execute(stock.fill.encode(), {**values, "turns": -(-rest // stock.rows_a_turn)})
                if stock.last:
                    connection.execute(stock.last.encode(), values)
                connection.execute("vacuum (analyze)")
            self._templates.add(template)
        self._copy(template if depth else stock.base, "bench")
        if stock.base in BROKER_BASES:
            # A copy of a database comes up with its broker disabled.
            with self.connect("bench") as connection:
                connection.execute("select broker.alter_broker('ENABLE_BROKER')")

    def _prepare(self, base: str) -> None:
        self._copy("template1", base)
        broker = BROKER_BASES.get(base)
        if broker is None:
            with self.connect(base) as connection:
                connection.execute(self._definitions[base]().encode())
        else:
            migrate(self.server.url(base))
            with self.connect(base) as connection:
                connection.execute(f"{DEFINITIONS}{broker.also}".encode())
                connection.execute(
                    f"insert into dialogs select n, broker.begin_dialog({broker.initiator}, '//warehouse', 'ordering')"
                    f" from generate_series(1, {broker.dialogs}) n".encode()
                )
                connection.execute("vacuum (analyze)")
                connection.execute("select count(broker.send(handle, 'order')) from dialogs")
                drain(connection)
                connection.execute("vacuum (analyze)")
        self._templates.add(base)

    @contextmanager
    def _held(self, groups: int) -> Iterator[None]:
        held: set[Any] = set()
        with ExitStack() as sessions:
            for _ in range(groups):
                session = sessions.enter_context(self.connect("bench"))
                session.execute("begin")
                received = session.execute(
                    "select conversation_group_id from broker.receive('warehouse', top => 1)"
                )
                held.update(row[0] for row in received)
            if len(held) != groups:
                raise BenchmarkError(f"{len(held)} groups are held, and not {groups}")
            yield

    @contextmanager
    def _checkpoint(self, *, is_wanted: bool) -> Iterator[None]:
        """Begin a checkpoint: from its first moment on each page is written whole once; its end is waited for afterwards."""
        with self.connect("postgres") as session:
            if is_wanted:
                session.pgconn.send_query(b"checkpoint")
            yield
            while is_wanted and session.pgconn.get_result() is not None:
                pass

    @contextmanager
    def metered(self) -> Iterator[Usage]:
        """Yield what the clients' server uses while this lasts."""
        usage = Usage([self.server])
        with Waits([self.server.url("postgres")]) as waits:
            yield usage
        # A backend's time is counted once the server has seen it end.
        time.sleep(0.1)
        usage.end(waits.shares())

    @contextmanager
    def profiled(
        self, servers: Sequence[str] = (), databases: Sequence[str] = (), workers: Sequence[int] = ()
    ) -> Iterator[None]:
        """Let the profiler look, if there is one, at servers, by a URL of each, at databases and worker processes; at the clients' where none is named."""
        if self.profiler is None:
            yield
            return
        with self.profiler.watch(
            servers or [self.server.url("postgres")], databases or [self.server.url("bench")], workers
        ):
            yield

    def pgbench(
        self,
        script_text: str,
        clients: int,
        seconds: int,
        body_bytes: int,
        *,
        progress: bool = False,
        transactions: int = 0,
    ) -> str:
        """Run clients for so many seconds, or so many transactions each; return what pgbench says."""
        with self.profiled(), started_pgbench(
            self.server, self.server.url("bench"), script_text, clients, body_bytes,
            f"--transactions={transactions}" if transactions else f"--time={seconds}",
            *(["--progress=1"] if progress else []),
        ) as process:  # fmt: skip
            return finish_pgbench(process, script_text)

    def connect(self, database: str) -> closing[psycopg.Connection[Any]]:
        return closing(psycopg.connect(self.server.url(database), autocommit=True))

    def value(self, query: str) -> int:
        with self.connect("bench") as connection:
            return int(number(connection, query))

    def _copy(self, template: str, database: str) -> None:
        # Through the WAL: the copy's pages are newer than the checkpoint, so every measurement begins in the same state.
        self.drop(database)
        with self.connect("postgres") as connection:
            connection.execute("checkpoint")
            connection.execute(
                sql.SQL("create database {} template {} strategy wal_log").format(
                    sql.Identifier(database), sql.Identifier(template)
                )
            )

    def drop(self, database: str) -> None:
        with self.connect("postgres") as connection:
            connection.execute(
                sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database))
            )


class Others:
    """What other programs use of the processors from when it is made: all but this one, its children and servers.

    `seconds` returns what the servers have used.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._start = self._now()

    def share(self) -> float:
        """Return what part of all processors it was until now."""
        others, wall = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return max(0.0, others / (wall * (os.cpu_count() or 1)))

    def _now(self) -> tuple[float, float]:
        all_ = psutil.cpu_times()
        busy = sum(getattr(all_, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
        return busy - processor_seconds(os.getpid()) - self._seconds(), time.monotonic()


class Usage:
    """WAL and processor time of servers, and of workers, from when it is made until `end`."""

    def __init__(self, servers: Sequence[EmbeddedServer], workers: Sequence[int] = ()) -> None:
        self._servers = servers
        self._workers = workers
        self._start = self._now()
        self._others = Others(self._servers_seconds)
        self._used = (0.0, 0.0, 0.0)
        self._others_share = 0.0
        self._waits: dict[str, float] = {}

    def end(self, waits: dict[str, float] | None = None) -> None:
        """Remember what has been used; and what was waited for."""
        wal, cpu, worker = (now - then for now, then in zip(self._now(), self._start, strict=True))
        self._used = wal, cpu * 1e6, worker * 1e6
        self._others_share = self._others.share()
        self._waits = waits or {}

    def sample(
        self, done: float, rate: float, own_base: float | None = None, notes: dict[str, float] | None = None
    ) -> Sample:
        """Return the sample for so many messages."""
        wal, cpu, worker = (used / done for used in self._used)
        return Sample(
            rate, wal, cpu, own_base, worker if self._workers else None, self._waits, notes or {},
            others=self._others_share,
        )  # fmt: skip

    def _now(self) -> tuple[float, float, float]:
        wal = 0.0
        for server in self._servers:
            with closing(psycopg.connect(server.url("postgres"), autocommit=True)) as session:
                wal += number(session, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        return (
            wal,
            self._servers_seconds(),
            sum(processor_seconds(worker) for worker in self._workers),
        )

    def _servers_seconds(self) -> float:
        return sum(processor_seconds(postmaster(server)) for server in self._servers)


def settings_of(session: psycopg.Connection[Any], names: Sequence[str] = SETTINGS) -> dict[str, str]:
    """Return a server's settings.

    Raises:
        BenchmarkError: Those that make a commit durable are not all on.
    """
    found: dict[str, str] = dict(
        session.execute(
            "select name, current_setting(name) from unnest(%s::text[]) name", [list(names)]
        ).fetchall()
    )
    if off := [name for name in DURABLE if found[name] != "on"]:
        raise BenchmarkError(f"{', '.join(off)} must be on: nothing else is worth comparing")
    return found


def postmaster(server: EmbeddedServer) -> int:
    """Return the server's process."""
    return int((server.data_directory / "postmaster.pid").read_text().split("\n", 1)[0])


def processor_seconds(process_id: int) -> float:
    """Return what a process and its children have used, those too that have ended."""
    process = psutil.Process(process_id)
    seconds = sum(process.cpu_times()[:4])
    for child in process.children():
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        seconds += times.user + times.system
    return float(seconds)


def number(connection: psycopg.Connection[Any], query: str) -> float:
    """Return the one figure that a query finds."""
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return float(row[0])


@contextmanager
def started_pgbench(
    server: EmbeddedServer, url: str, script_text: str, clients: int, body_bytes: int, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Start pgbench's clients; kill them at the end, if they still run."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(script_text + "\n")
        script.flush()
        threads = min(clients, os.cpu_count() or 1)
        command = [
            str(server.binary("pgbench")), "--no-vacuum", "--protocol=prepared",
            f"--client={clients}", f"--jobs={threads}", f"--file={script.name}", *options,
        ]  # fmt: skip
        # Just those that the script names, to keep the command line readable.
        for name, value in _variables(body_bytes).items():
            if re.search(rf":{name}\b", script_text):
                command.append(f"--define={name}={value}")
        process = subprocess.Popen(
            [*command, url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


PROCESSED = r"actually processed: (\d+)"


def warmed_up(process: subprocess.Popen[str]) -> str:
    """Wait for pgbench's first report of its progress, and return what it has said until then."""
    assert process.stdout is not None
    said = ""
    while line := process.stdout.readline():
        said += line
        if line.startswith("progress:"):
            break
    return said


def warm_rate(output: str) -> float:
    """Return the transactions a second since pgbench's first report of its progress."""
    processed = figure(PROCESSED, output)
    # Its rate leaves out the time in which its clients connected.
    seconds = processed / figure(r"tps = ([\d.]+)", output)
    return (processed - early_transactions(output)) / (seconds - figure(r"progress: ([\d.]+) s", output))


def early_transactions(output: str) -> float:
    """Return how many transactions there were until pgbench's first report of its progress."""
    return figure(r"progress: ([\d.]+) s", output) * figure(r"progress: [\d.]+ s, ([\d.]+) tps", output)


def finish_pgbench(process: subprocess.Popen[str], script_text: str) -> str:
    """Wait for pgbench, and return what it says."""
    output, _ = process.communicate()
    if process.returncode != 0:
        raise BenchmarkError(f"pgbench failed:\n{script_text[:500]}\n{output[-2000:]}")
    return output


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


def drain(connection: psycopg.Connection[Any]) -> int:
    """Receive all that is in the queue and return how much it was."""
    total = 0
    # Nothing is measured here, and there may be as many groups as there are messages.
    connection.execute("set synchronous_commit to off")
    while True:
        row = connection.execute("select count(*) from broker.receive('warehouse', top => 1000)").fetchone()
        assert row is not None
        if row[0] == 0:
            connection.execute("reset synchronous_commit")
            return total
        total += row[0]


def figure(pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    if found is None:
        raise BenchmarkError(f"pgbench said something new:\n{output}")
    return float(found[1])
