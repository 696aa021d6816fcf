"""How fast pybroker is beside PostgreSQL itself: `make bench`, explained in docs/performance.md.

Each line is measured beside what PostgreSQL alone can do with the same clients, in the same rounds of the
same run, since only such ratios can be carried from one machine or day to another. What is measured is data:
a scenario is a row of LOADS, what must lie in the database before it begins is a row of STOCKS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import psutil
import psycopg
from psycopg import sql
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pybroker.migrations import migrate
from tests.brokers import Site, two_sites

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from pybroker.embedded import EmbeddedServer

BODY_BYTES = 100
BATCH = 100
CLIENTS = (1, 16)
DIALOGS = 1_000
HOP_DIALOGS = 50
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
SETTINGS = (*DURABLE, "wal_sync_method", "shared_buffers", "max_wal_size", "server_version")
IN_MEMORY = {"tmpfs", "ramfs"}
# With less than this part of its stock left when the clients stopped, a queue may have been empty for some
# of them before.
NEARLY_DRY = 0.05
# Where the best round's ratio is more than this times the worst's, the median of a few rounds is chance.
STEADY = 1.5
# Other programs using more of the processors than this make the messages/s worth nothing, the ratios less.
BUSY_PERCENT = 15

_BODY = random.Random(7).randbytes(BODY_BYTES)
# Bodies go over the wire with each call, for PostgreSQL's own lines as for the broker's.
_VARIABLES = {"body": f"\\x{_BODY.hex()}", "bodies": "{" + ",".join([f'"\\\\x{_BODY.hex()}"'] * BATCH) + "}"}

DEFINITIONS = f"""
select broker.create_message_type('order');
select broker.create_contract('ordering', sent_by_initiator => '{{order}}');
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
# Counted behind the public views, which number and name each message: too slow between two measurements.
COUNT_MESSAGES = "select count(*) from broker_private.messages"
COUNT_PLAIN_ROWS = "select count(*) from plain_rows"
IN_TRANSMISSION = "select exists (select from broker_private.transmission_messages)"

_SOME_DIALOG = f"\\set dialog random(1, {DIALOGS})\n"
_HANDLE = "(select handle from dialogs where number = :dialog)"


class BenchmarkError(Exception):
    """What was measured can't be trusted, or could not be measured; the text says why."""


@dataclass(frozen=True)
class Stock:
    """What lies in the database when a measurement begins."""

    # Enough that nobody finds it empty. What turns out too little is doubled, and the measurement made again.
    per_second: int
    # Its parameters are body, bodies and turns: how many messages (or batches) each of the dialogs gets.
    fill: str = ""
    rows_a_turn: int = DIALOGS


STOCKS = {
    "nothing": Stock(0),
    "plain rows": Stock(
        60_000,
        f"insert into plain_rows (body) select %(body)s from generate_series(1, {DIALOGS} * %(turns)s)",
    ),
    "batches of plain rows": Stock(
        250_000,
        f"insert into plain_rows (body) select %(body)s from generate_series(1, {DIALOGS} * %(turns)s)",
    ),
    # One message of each dialog in turn, as many small transactions would leave them.
    "messages": Stock(
        12_000,
        "select count(broker.send(d.handle, 'order', %(body)s::bytea))"
        " from (select handle from generate_series(1, %(turns)s) turn, dialogs order by turn, number) d",
    ),
    # Each dialog's messages in runs of 100, as send_batch leaves them.
    "batches of messages": Stock(
        100_000,
        "select count(broker.send_batch(d.handle, 'order', %(bodies)s::bytea[]))"
        " from (select handle from generate_series(1, %(turns)s) turn, dialogs order by turn, number) d",
        DIALOGS * BATCH,
    ),
}


class Scenario(Protocol):
    """One line of the result."""

    @property
    def key(self) -> tuple[str, int]:
        """Name and clients."""

    @property
    def base(self) -> tuple[str, int] | None:
        """The line that this one is a ratio of, or None for a line that is PostgreSQL's own."""

    def measure(self, bench: Bench) -> float:
        """Return messages a second."""


@dataclass(frozen=True)
class Load:
    """What pgbench's clients do again and again, each time in a transaction of its own."""

    name: str
    script: str
    count: str
    stock: str = "nothing"
    of: str | None = None
    clients: int = 1

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.clients

    @property
    def base(self) -> tuple[str, int] | None:
        return None if self.of is None else (self.of, self.clients)

    def measure(self, bench: Bench) -> float:
        while True:
            before, after, seconds = bench.run(self)
            if self.stock == "nothing" or after > before * NEARLY_DRY:
                # By what is in the table, not by transactions: one that found nothing received nothing.
                return abs(after - before) / seconds
            bench.deepen(self.stock)


@dataclass(frozen=True)
class Hop:
    """From one server's transmission queue through two workers into the other's queue, and acknowledged."""

    name: str
    of: tuple[str, int]
    per_second: int = 20_000
    clients: int = 1

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.clients

    @property
    def base(self) -> tuple[str, int]:
        return self.of

    def measure(self, bench: Bench) -> float:
        shop, warehouse = bench.shop, bench.warehouse
        turns = max(1, self.per_second * bench.seconds // (HOP_DIALOGS * BATCH))
        warehouse.start_worker()
        shop.psql.rows(
            "select count(broker.send_batch(d.handle, 'order', %s::bytea[]))"
            " from (select handle from generate_series(1, %s) turn, dialogs order by turn, number) d",
            [_BODY] * BATCH,
            turns,
        )
        shop.start_worker()
        # The clock starts with the first message that has arrived, so starting Python and shaking hands are
        # not in it; and what came with that message is not counted.
        arrived = 0
        while not arrived:
            bench.watch(0.005)
            started = time.perf_counter()
            arrived = warehouse.psql.value(COUNT_MESSAGES)
        while shop.psql.value(IN_TRANSMISSION):
            bench.watch(0.02)
        seconds = time.perf_counter() - started
        total = bench.clear_hop()
        if total != turns * HOP_DIALOGS * BATCH:
            raise BenchmarkError(f"{turns * HOP_DIALOGS * BATCH} messages were sent and {total} received")
        return (total - arrived) / seconds


INSERT = f"INSERT {BATCH}"
DELETE = (
    "delete from plain_rows"
    " where id = any (array(select id from plain_rows order by id limit {} for update skip locked))"
    " returning id, body"
)
RECEIVE = (
    "select conversation_handle, message_type_name, message_body from broker.receive('warehouse', top => {})"
)
LOADS = (
    Load("INSERT 1", "insert into plain_rows (body) values (:body)", COUNT_PLAIN_ROWS),
    Load(
        "broker.send",
        f"{_SOME_DIALOG}select broker.send({_HANDLE}, 'order', :body::bytea)",
        COUNT_MESSAGES,
        of="INSERT 1",
    ),
    Load(INSERT, "insert into plain_rows (body) select b from unnest(:bodies::bytea[]) b", COUNT_PLAIN_ROWS),
    Load(
        f"broker.send_batch {BATCH}",
        f"{_SOME_DIALOG}select broker.send_batch({_HANDLE}, 'order', :bodies::bytea[])",
        COUNT_MESSAGES,
        of=INSERT,
    ),
    Load("DELETE 1", DELETE.format(1), COUNT_PLAIN_ROWS, "plain rows"),
    Load("broker.receive TOP 1", RECEIVE.format(1), COUNT_MESSAGES, "messages", of="DELETE 1"),
    Load(f"DELETE {BATCH}", DELETE.format(BATCH), COUNT_PLAIN_ROWS, "batches of plain rows"),
    Load(
        f"broker.receive TOP {BATCH}",
        RECEIVE.format(BATCH),
        COUNT_MESSAGES,
        "batches of messages",
        of=f"DELETE {BATCH}",
    ),
)
# Each line comes right after its base, so that what else the machine does falls on both.
SCENARIOS: tuple[Scenario, ...] = (
    *(replace(load, clients=clients) for clients in CLIENTS for load in LOADS),
    Hop("hop, two servers, TLS", of=(INSERT, 1)),
)


class Bench:
    """Two servers with a database each; and databases on the first, a new one for each measurement."""

    def __init__(self, shop: Site, warehouse: Site, seconds: int) -> None:
        self.shop = shop
        self.warehouse = warehouse
        self.seconds = seconds
        self._depths: dict[str, int] = {}

    @property
    def server(self) -> EmbeddedServer:
        return self.shop.server

    def settings(self) -> dict[str, str]:
        """Return the servers' settings, the same on both; those that make a commit durable must be on."""
        shop, warehouse = (
            {name: str(site.psql.value(f"show {name}")) for name in SETTINGS}
            for site in (self.shop, self.warehouse)
        )
        if shop != warehouse:
            raise BenchmarkError(f"the two servers differ: {shop} and {warehouse}")
        if off := [name for name in DURABLE if shop[name] != "on"]:
            raise BenchmarkError(f"{', '.join(off)} must be on: nothing else is worth comparing")
        return shop

    def prepare(self) -> None:
        """Make the database that the others are copied from, and the dialogs between the two servers."""
        self._copy("template1", "bench nothing")
        migrate(self.server.url("bench nothing"))
        with self._connect("bench nothing") as connection:
            connection.execute(DEFINITIONS.encode())
            _drain(connection)
            connection.execute("vacuum (analyze)")
        self._depths["nothing"] = 0
        self.shop.psql.rows("create table dialogs (number integer primary key, handle uuid not null)")
        self.shop.psql.rows(
            "insert into dialogs"
            " select n, broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
            " from generate_series(1, %s) n",
            HOP_DIALOGS,
        )
        self.shop.psql.rows("select count(broker.send(handle, 'order')) from dialogs")
        self.warehouse.start_worker()
        self.shop.start_worker()
        while self.shop.psql.value(IN_TRANSMISSION):
            self.watch(0.02)
        self.clear_hop()

    def run(self, load: Load) -> tuple[int, int, float]:
        """Let clients loose on a copy of the load's stock; return rows before, rows after, and seconds."""
        if load.stock not in self._depths:
            self._fill(load.stock, STOCKS[load.stock].per_second * self.seconds)
        self._copy(f"bench {load.stock}", "bench")
        before = self._value("bench", load.count)
        output = self._pgbench(load)
        after = self._value("bench", load.count)
        self._drop("bench")
        processed = int(_figure(r"actually processed: (\d+)", output))
        # pgbench's rate leaves out the time in which its clients connected.
        rate = _figure(r"tps = ([\d.]+)", output)
        if not processed or before == after:
            raise BenchmarkError(f"{load.name} did nothing:\n{output}")
        return before, after, processed / rate

    def deepen(self, stock: str) -> None:
        """Double a stock that was too little for this machine."""
        self._fill(stock, 2 * self._depths[stock])

    def watch(self, seconds: float) -> None:
        """Wait a moment, unless a worker has ended: then what is waited for never comes."""
        for site in (self.shop, self.warehouse):
            if site.worker is not None and site.worker.poll() is not None:
                raise BenchmarkError(f"the worker of {site.name} ended:\n{site.log.read_text()[-2000:]}")
        time.sleep(seconds)

    def clear_hop(self) -> int:
        """Stop both workers, empty the far queue, and return how many messages were in it."""
        for site in (self.shop, self.warehouse):
            site.stop_worker()
            site.worker = None
        received = _drain(self.warehouse.psql.connection)
        for site in (self.shop, self.warehouse):
            site.psql.rows("vacuum (analyze)")
        return received

    def _fill(self, name: str, depth: int) -> None:
        stock = STOCKS[name]
        turns = -(-depth // stock.rows_a_turn)
        self._copy("bench nothing", f"bench {name}")
        with self._connect(f"bench {name}") as connection:
            connection.execute(
                stock.fill.encode(), {"body": _BODY, "bodies": [_BODY] * BATCH, "turns": turns}
            )
            connection.execute("vacuum (analyze)")
        self._depths[name] = depth

    def _pgbench(self, load: Load) -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(load.script + "\n")
            script.flush()
            threads = min(load.clients, os.cpu_count() or 1)
            command = [
                str(self.server.binary("pgbench")), "--no-vacuum", "--protocol=prepared",
                f"--time={self.seconds}", f"--client={load.clients}",
                f"--jobs={threads}", f"--file={script.name}",
            ]  # fmt: skip
            # Just those that the script names, to keep the command line readable.
            for name, value in _VARIABLES.items():
                if re.search(rf":{name}\b", load.script):
                    command.append(f"--define={name}={value}")
            process = subprocess.Popen(
                [*command, self.server.url("bench")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                output, errors = process.communicate()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if process.returncode != 0:
            raise BenchmarkError(f"pgbench failed in {load.name}:\n{(output + errors)[-2000:]}")
        return output

    def _connect(self, database: str) -> closing[psycopg.Connection[Any]]:
        return closing(psycopg.connect(self.server.url(database), autocommit=True))

    def _value(self, database: str, query: str) -> int:
        with self._connect(database) as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

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


@dataclass(frozen=True)
class Machine:
    """Where and on what it ran."""

    started: str
    revision: str
    system: str
    processor: str
    cores: int
    memory_gib: float
    busy_percent: float
    data_directory: str
    file_system: str
    settings: dict[str, str] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        """Return what a reader of the figures must know."""
        found = []
        if self.file_system in IN_MEMORY:
            found.append(
                "The data is in memory, where fsync costs nothing: not a result."
                " Set TMPDIR to a folder on a disk."
            )
        if self.busy_percent > BUSY_PERCENT:
            found.append(
                f"Other programs used {self.busy_percent:.0f} % of the processors before the run began:"
                " look at the ratios only."
            )
        return found


def _machine(bench: Bench, busy_percent: float) -> Machine:
    directory = bench.server.data_directory
    return Machine(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        revision=_revision(),
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        busy_percent=busy_percent,
        data_directory=str(directory),
        file_system=_file_system(directory),
        settings=bench.settings(),
    )


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _file_system(path: Path) -> str:
    mounts = [
        (len(Path(mount.mountpoint).parts), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if path.resolve().is_relative_to(mount.mountpoint)
    ]
    return max(mounts)[1] if mounts else "unknown"


def _revision() -> str:
    # Without optional locks git writes nothing, not even to its index.
    git = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent)]
    try:
        head, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", "..", ":!."])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} with uncommitted changes" if changes else head


@dataclass(frozen=True)
class Line:
    """A scenario's rates, one a round, and what part of the base's rate in the same round each was."""

    name: str
    clients: int
    rates: Sequence[float]
    base: str | None
    ratios: Sequence[float]
    is_steady: bool


def _lines(rates: dict[tuple[str, int], list[float]]) -> list[Line]:
    lines = []
    for scenario in SCENARIOS:
        own, base = rates[scenario.key], scenario.base
        ratios = [] if base is None else [a / b for a, b in zip(own, rates[base], strict=True)]
        judged = ratios or own
        # One round can't say how steady it is.
        is_steady = len(judged) > 1 and max(judged) <= STEADY * min(judged)
        lines.append(Line(*scenario.key, own, None if base is None else base[0], ratios, is_steady))
    return lines


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def _show(console: Console, lines: Sequence[Line]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("what", no_wrap=True)
    for heading in ("clients", "messages/s", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("of")
    for line in lines:
        ratio = _spread(line.ratios, ".2f") if line.ratios else ""
        table.add_row(
            line.name if line.is_steady else f"{line.name} ?",
            str(line.clients),
            _spread(line.rates, ",.0f"),
            ratio,
            line.base or "",
            style=None if line.ratios else "dim",
        )
    console.print(table)
    if not all(line.is_steady for line in lines):
        console.print(
            f"? one round only, or rounds that differ by more than a factor of {STEADY}: not a result"
        )


def _introduce(console: Console, machine: Machine, seconds: int, rounds: int) -> None:
    settings = ", ".join(f"{name} {value}" for name, value in machine.settings.items())
    for label, value in (
        ("date", machine.started),
        ("revision", machine.revision),
        (
            "machine",
            f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.system}",
        ),
        ("busy before", f"{machine.busy_percent:.0f} % of the processors"),
        ("data", f"{machine.data_directory} on {machine.file_system}"),
        ("PostgreSQL", settings),
        ("run", f"{rounds} rounds of {seconds} s, bodies of {BODY_BYTES} bytes; median (min..max)"),
    ):
        console.print(f"{label:<12}{value}", highlight=False, soft_wrap=True)
    for warning in machine.warnings():
        console.print(f"[yellow]{warning}", soft_wrap=True)
    console.print()


def _measure(console: Console, bench: Bench, rounds: int) -> dict[tuple[str, int], list[float]]:
    rates: dict[tuple[str, int], list[float]] = {scenario.key: [] for scenario in SCENARIOS}
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("preparing", total=rounds * len(SCENARIOS))
        bench.prepare()
        for number in range(rounds):
            # Every other round backwards: what a run does to a machine as it goes on falls on all alike.
            for scenario in SCENARIOS if number % 2 == 0 else SCENARIOS[::-1]:
                name, clients = scenario.key
                progress.update(task, description=f"{name}, {_clients(clients)}")
                rates[scenario.key].append(scenario.measure(bench))
                progress.advance(task)
    return rates


def _use_a_disk() -> None:
    # On many systems /tmp is memory and /var/tmp is not. A TMPDIR that somebody set is obeyed, and warned of.
    if "TMPDIR" not in os.environ and _file_system(Path(tempfile.gettempdir())) in IN_MEMORY:
        tempfile.tempdir = "/var/tmp"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark", description=__doc__)
    parser.add_argument(
        "--rounds", type=_above_zero, default=3, help="how often each is measured (default 3)"
    )
    parser.add_argument("--seconds", type=_above_zero, default=3, help="seconds for each (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all of it to this file")
    arguments = parser.parse_args()
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser.error(f"{arguments.json} is in a folder that does not exist")
    return arguments


def _above_zero(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # Once: the clean-up that this begins is not to be cut off by an impatient second Ctrl-C.
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Run it all; return the exit code."""
    arguments = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    # PGOPTIONS and its like would change the sessions behind the settings that are printed.
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    _use_a_disk()
    console, watcher = Console(), Console(stderr=True)
    if not console.is_terminal:
        # A file has no width; rich would take 80 columns and cut the table.
        console = Console(width=110)
    try:
        busy_percent = psutil.cpu_percent(interval=1)
        with (
            tempfile.TemporaryDirectory(prefix="pybroker-benchmark-") as directory,
            two_sites(Path(directory)) as sites,
        ):
            bench = Bench(*sites, arguments.seconds)
            machine = _machine(bench, busy_percent)
            _introduce(console, machine, arguments.seconds, arguments.rounds)
            lines = _lines(_measure(watcher, bench, arguments.rounds))
    except KeyboardInterrupt:
        watcher.print("Interrupted; everything is cleaned up.")
        return 130
    except BenchmarkError as error:
        watcher.print(f"The benchmark failed: {error}", markup=False)
        return 1
    _show(console, lines)
    if arguments.json is not None:
        result = {
            "machine": asdict(machine),
            "seconds": arguments.seconds,
            "rounds": arguments.rounds,
            "body_bytes": BODY_BYTES,
            "warnings": machine.warnings(),
            "lines": [asdict(line) for line in lines],
        }
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
