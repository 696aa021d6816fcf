"""`make bench` and `make capacity`: the lists are whole, a run leaves a report, and the calculator reckons with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import missing
from tests.bench import capacity as calculator
from tests.bench import figures
from tests.bench.against import compared
from tests.bench.between import split
from tests.bench.capacity import HOP, MANY, Load, MissingLineError, Results, capacity, text
from tests.bench.figures import BEGIN, END
from tests.bench.instructions import count
from tests.bench.machine import Machine
from tests.bench.peers import peers
from tests.bench.profiles import FUNCTIONS, SERVERS, Profiler, own_function, part_of
from tests.bench.report import Run, as_json
from tests.bench.results import Line, verdicts
from tests.bench.scenarios import (
    FULL,
    INSERT,
    ONE_DIALOG,
    PATH_SEALED,
    QUICK,
    SEND,
    SEND_BATCH,
    TOP_BATCH,
    TOP_ONE,
    Scale,
    in_turn,
    scenarios,
    sized,
    targets,
)
from tests.bench.stage import BenchmarkError, settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Database

MACHINE = {
    "processor": "one",
    "cores": 4,
    "started": "2026-01-01",
    "revision": "abc",
    "settings": {"server_version": "18"},
}


def result(*lines: tuple[str, int, float, float | None, float]) -> dict[str, Any]:
    """Return what a run wrote; a line is its name, clients, microseconds of servers and workers, and bytes of WAL."""
    return {
        "machine": MACHINE,
        "lines": [
            {
                "name": name,
                "clients": count,
                "rates": [4000.0],
                "cpu_us": cpu,
                "worker_us": worker,
                "wal_bytes": wal,
            }
            for name, count, cpu, worker, wal in lines
        ],
    }


WHOLE = result(
    (MANY, 16, 100, None, 500),
    (sized(MANY, 1024), 16, 192.4, None, 1424),
    (TOP_ONE, 16, 60, None, 160),
    (TOP_BATCH, 1, 5, None, 60),
    (SEND_BATCH, 1, 10, None, 300),
    (HOP, 1, 30, 10, 1000),
    (ONE_DIALOG, 50, 300, None, 500),
    (PATH_SEALED, 50, 200, 110, 2000),
)


@pytest.mark.parametrize("scale", [QUICK, FULL])
def test_every_line_that_the_report_compares_is_measured(scale: Scale, tmp_path: Path) -> None:
    for name in ("pgmq.sql", "pgq_pl_only.sql"):
        (tmp_path / name).touch()
    for peer in ("pgqueuer", "procrastinate"):
        pytest.importorskip(peer, reason=missing.reason(peer, "make .venv/.bench"))
    lines = [*scenarios(scale), *(load for peer in peers(tmp_path, scale) for load in peer.loads)]
    keys = [line.key for line in lines]
    assert len(keys) == len(set(keys))
    bases = {line.base for line in lines if line.base is not None}
    compared = {key for target in targets(scale) for key in (target.line, target.of) if key is not None}
    assert bases | compared <= set(keys)
    order = [line.key for line in in_turn(lines, targets(scale))]
    assert sorted(order) == sorted(keys)
    # What is compared is measured in the same minute.
    assert order.index(("pgmq.send", 16)) == order.index((SEND, 16)) + 1
    assert order.index((PATH_SEALED, 50)) < order.index((INSERT, 50)) + 8
    if scale is FULL:
        # Four numbers of clients, four sizes, and one, fifty and 7,500 dialogs.
        assert len([key for key in keys if key[0].startswith("broker.send,")]) == 48


def test_the_clients_of_a_line_are_as_many_as_it_says() -> None:
    assert split(50, 3) == [17, 17, 16]


def test_a_server_that_may_forget_commits_is_not_measured(database: Database) -> None:
    with database.connect() as session, pytest.raises(BenchmarkError, match="fsync"):
        settings_of(session)


def test_the_calculator_s_figures_follow_from_the_run_s() -> None:
    results = Results(WHOLE)
    small = capacity(results, Load(10_000))
    assert small.cost.server_us == 160
    assert small.cores[0] == pytest.approx(1.6)
    assert small.wal == pytest.approx(6.6e6)
    assert small.least_dialogs == 3
    assert small.most == pytest.approx(17_500)
    assert small.machines == 1
    # Half-way between the two sizes that were measured, and beyond them.
    assert capacity(results, Load(1, size=562)).cost.server_us == pytest.approx(206.2)
    assert capacity(results, Load(1, size=2048)).cost.wal_bytes == pytest.approx(160 + 2448)
    batches = capacity(results, Load(500_000, batch=100, crosses=True))
    assert batches.cost.server_us == 45
    assert batches.cost.worker_us == 10
    assert batches.cores[1] == pytest.approx(5)
    assert batches.machines == 10
    assert batches.least_dialogs == 125
    singly = capacity(results, Load(1_000, size=1024, crosses=True))
    assert singly.cost.worker_us == 110
    assert singly.cost.server_us == pytest.approx(292.4)
    assert "TOO FEW" in text(results, Load(10_000, dialogs=1))


def test_the_calculator_names_the_line_that_a_run_lacks() -> None:
    with pytest.raises(MissingLineError, match="TOP 1"):
        capacity(Results(result()), Load(1))


def line(name: str, clients: int, rate: float, cpu: float) -> Line:
    return Line(
        "ours", name, clients, [rate, rate], None, [], 100, cpu, True, waits={"running": 0.9}, cpu=[cpu, cpu]
    )


def test_a_missed_target_is_explained_once_for_each_line() -> None:
    slow, limit, peer = (
        line(SEND, 16, 1000, 900),
        line(INSERT, 16, 4000, 100),
        line("pgmq.send", 16, 3000, 200),
    )
    machine = Machine("2026-01-01", "abc", "Linux", "one", 1, 1, 0, "/", "ext4")
    profiles = {slow.key: {"the servers' processors": "commit 100 %"}}
    said = json.loads(as_json(Run(machine, [], 1, 2, [slow, limit, peer], targets(QUICK), profiles)))
    (explained,) = said["explanations"]
    assert explained["line"] == "broker.send, 16 clients"
    assert [text.split(":")[0] for text in explained["missed"]] == [
        "SEND, 16 clients, 1,000 dialogs, of LIMIT",
        "SEND, 16 clients, of pgmq.send",
    ]
    assert explained["reasons"]["bound by"].startswith("the processors; 900 µs")
    assert explained["reasons"]["the servers' processors"] == "commit 100 %"
    assert explained["reasons"]["tried"]
    assert said["targets"][0]["of_aim"] == pytest.approx(0.25 / 0.65)


def test_rounds_that_allow_no_verdict_get_none() -> None:
    def found(*rates: float, others: float = 0, in_memory: bool = False) -> tuple[str, bool | None]:
        limit, tried = (
            Line("ours", name, 16, found, None, [], None, None, True, others=[others])
            for name, found in ((INSERT, [1000] * len(rates)), (SEND, rates))
        )
        verdict = verdicts([limit, tried], targets(QUICK), 2, in_memory=in_memory)[0]
        return verdict.doubt, verdict.is_reached

    assert found(600, 620) == ("", True)
    assert found(100, 300) == ("", False)
    assert found(400, 600)[0] == "between"
    assert found(600, 1000)[0] == "not steady"
    assert found(600)[0] == "one round"
    assert found(600, 620, others=0.2)[0] == "disturbed"
    assert found(600, 620, in_memory=True)[0] == "in memory"


def test_a_profile_tells_functions_apart(database: Database, tmp_path: Path) -> None:
    with database.connect() as session:
        session.execute("create table work (id integer primary key)")
        session.execute(
            "create function inner_work(n integer) returns void language plpgsql as $$ begin insert into work values (n); end $$"
        )
        session.execute(
            "create function outer_work(n integer) returns void language plpgsql as $$ begin perform inner_work(n); perform pg_sleep(0.001); end $$"
        )
    profiler = Profiler("work", tmp_path)
    with profiler.watch([database.url], [database.url], []), database.connect() as session:
        for number in range(50):
            session.execute("select outer_work(%s)", [number])
    said = profiler.said()
    outer, inner = (
        float(re.search(rf"public.{name} ([\d,.]+)", said[FUNCTIONS])[1].replace(",", ""))  # type: ignore[index]
        for name in ("outer_work", "inner_work")
    )
    assert outer >= 1000
    assert inner > 0
    # Samples need a tool that may not be here, or may not look: then the report says so.
    assert SERVERS in said or SERVERS in said["not profiled"]


def test_a_stack_is_told_by_its_innermost_known_function() -> None:
    assert part_of(("main", "ExecutorRun", "ExecutorStart", "palloc")) == "setting statements up"
    assert part_of(("WalWriterMain", "XLogFlush")) == "WAL writer"
    assert part_of(("main",)) == "other"
    frames = (
        "run (asyncio/runners.py:1)",
        "read (pybroker/workers/transport/connection/link.py:12)",
        "recv (ssl.py:3)",
    )
    assert own_function(frames) == "read (link.py)"


@pytest.mark.timeout(900)
def test_a_run_leaves_a_report_and_the_calculator_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report, page = tmp_path / "result.json", tmp_path / "result.html"
    options = ["--rounds=1", "--seconds=1", "--fresh", "--in-memory", f"--json={report}", f"--page={page}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.bench", *options, "--scenario", "fdatasync"]
    measured = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert measured.returncode == 0, measured.stderr
    found = json.loads(report.read_text())
    assert [line["name"] for line in found["lines"]] == ["fdatasync of a page"]
    assert found["lines"][0]["rates"][0] > 0
    assert found["machine"]["settings"]["fsync"] == "on"
    markdown = tmp_path / "performance.md"
    markdown.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["figures", "--results", str(report), "--page", str(markdown)])
    assert figures.main() == 0
    assert "| fdatasync of a page | 1 |" in markdown.read_text()
    assert "not measured" in markdown.read_text()
    monkeypatch.setattr(sys, "argv", ["capacity", "--rate", "1000", "--results", str(report), "--crosses"])
    assert calculator.main() == 1
    assert "make bench" in capsys.readouterr().err
    report.write_text(json.dumps(WHOLE))
    assert calculator.main() == 0
    assert "cores" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("SEND, local, by", {"SEND, local, by a granted role"}),
        pytest.param(
            "SEND, ",
            {
                "SEND, local",
                "SEND, remote",
                "SEND, local, by a granted role",
                "SEND, local, in a group of three",
                "SEND, local, traced",
                "SEND, local, with a trace context",
                "SEND, remote, with a trace context",
            },
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_instructions_are_counted_a_message(chosen: str, names: set[str]) -> None:
    if shutil.which("valgrind") is None:
        missing.skip("valgrind", "apt-get install valgrind")
    counted = count(chosen, 5)
    assert set(counted) == names
    # No call of PostgreSQL's costs less than the protocol, or so much that a whole session was counted.
    assert all(
        20_000 < instructions < (4_000_000 if "traced" in name else 2_000_000)
        for name, instructions in counted.items()
    )


def test_a_line_is_worse_only_where_all_its_rounds_lie_below_those_of_before() -> None:
    def rounds(*ratios: float) -> list[dict[str, object]]:
        return [
            {
                "lines": [
                    {"name": "SEND", "clients": 16, "ratios": [ratio], "cpu": [100.0], "worker": [20.0]},
                    {"name": f"only {ratio}", "clients": 1, "ratios": [ratio], "cpu": [], "worker": []},
                ]
            }
            for ratio in ratios
        ]

    ((overlapping,), (below,), (above,)) = (
        compared(rounds(0.5, 0.6), rounds(*now)) for now in ((0.4, 0.55), (0.3, 0.49), (0.7, 0.9))
    )
    assert (overlapping.is_worse, below.is_worse, above.is_worse) == (False, True, False)
    assert (below.name, below.clients, below.old.cpu) == ("SEND", 16, [120.0, 120.0])
