"""What `pybroker throughput` tells of its cells: the accounts of every message, the samples, and the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pybroker.spark import start_session
from pybroker.throughput.analysis import Outcome, analyse
from pybroker.throughput.cell import Run
from pybroker.throughput.clients import Sent
from pybroker.throughput.matrix import Cell, Timing
from pybroker.throughput.report import answers, backlogs, core_words, write_report
from pybroker.throughput.results import Conditions, Finished, Results
from pybroker.throughput.sampling import Sample
from tests.test_spark import QUICK
from tests.whitepaper import main as write_documentation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)

TEST, BEGAN, ENDED = 7, 1_000.0, 1_010.0
# Spark's own, which takes longer for each query than these few rows do.
NO_COMPILER = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
QUOTAS = {
    f"quota of the {one} {who}": f"{cores:g} cores"
    for one, quota in (("initiator1", 0.3), ("initiator2", 0.3), ("target", 0.9))
    for who, cores in (("server", quota * 2 / 3), ("worker", quota / 3))
}


def outcome(cell: Cell, rate: float, **others: Any) -> Outcome:
    plain: dict[str, Any] = {
        "sent": 100, "lost": 0, "doubled": 0, "swapped": 0, "by_second": [int(rate)], "send_rate": rate, "latency": [], "from_send": [],
        "receives": 1, "per_receive": 1.0, "readers": 1, "cores": {}, "wal_per_message": {}, "waits": {}, "bound_by": "clients", "seconds": 1.0,
    }  # fmt: skip
    return Outcome(cell=cell, rate=rate, **{**plain, **others})


def answer(row: int, outcomes: Sequence[Outcome]) -> str:
    return next(words for number, _, words in answers(outcomes) if number == row)


def samples() -> list[Sample]:
    """Two initiators and a target: outside of the measured seconds everything jumps."""
    found = []
    for server, waits in (
        ("initiator1", ["LWLock:WALWrite", "LWLock:WALWrite", "LWLock:BufferContent", "running"]),
        ("initiator2", []),
        ("target", ["Timeout:PgSleep"]),
    ):
        for at in (BEGAN - 1, BEGAN, BEGAN + 2, BEGAN + 4, ENDED + 1):
            is_measured = BEGAN <= at <= ENDED
            found.append(
                Sample(
                    at=at,
                    server=server,
                    wal_bytes=int(1_000_000 + 600 * (at - BEGAN)) if is_measured else int(at),
                    readers=1,
                    waits=waits if is_measured else ["Lock:advisory"] * 9,
                    server_cpu=50 + 0.25 * (at - BEGAN) if is_measured else 0.0,
                    worker_cpu=None,
                    machine_cpu=30.0 if is_measured else 100.0,
                )
            )
    return found


def test_a_lost_a_doubled_and_a_swapped_message_are_each_counted_and_the_samples_summed_up(
    tmp_path: Path,
) -> None:
    # By initiator and thread: all of them, one missing, one doubled, one overtaken; and of the last thread none came.
    arrived = {(1, 1): [1, 2, 3], (1, 2): [1, 3, 4], (2, 1): [1, 2, 2], (2, 2): [2, 1, 3], (2, 3): []}
    sent = {(1, 1): 3, (1, 2): 4, (2, 1): 2, (2, 2): 3, (2, 3): 5}
    rows = [(TEST, *whose, number) for whose, numbers in arrived.items() for number in numbers]
    # Left by another test.
    rows.append((TEST - 1, 1, 1, 1))
    columns = {
        "drop_no": range(len(rows)),
        "receive_no": [1] * len(rows),
        "enqueued": [BEGAN + 1] * len(rows),
        "bytes": pa.array([100] * len(rows), pa.int32()),
        "test": [test for test, _, _, _ in rows],
        "initiator": pa.array([initiator for _, initiator, _, _ in rows], pa.int32()),
        "thread": pa.array([thread for _, _, thread, _ in rows], pa.int32()),
        "number": [number for _, _, _, number in rows],
        "sent": [BEGAN + 0.5] * len(rows),
    }
    pq.write_table(pa.table(columns), tmp_path / "messages.parquet")
    receives = [{"receive_no": 1, "reader": 9, "messages": len(rows), "processed": BEGAN + 2.5}]
    pq.write_table(pa.Table.from_pylist(receives), tmp_path / "receives.parquet")
    run = Run(
        test=TEST,
        sent=[Sent(*whose, messages, BEGAN, ENDED) for whose, messages in sent.items()],
        samples=samples(),
        began=BEGAN,
        ended=ENDED,
        drained=ENDED,
        quotas={"target server": 0.26},
    )
    session = start_session("local[1]", settings=QUICK | NO_COMPILER)
    try:
        found = analyse(session, Cell("whitepaper", 18, 2, 3, 1, 100), run, tmp_path, seconds=1.0)
    finally:
        session.stop()
    assert (found.lost, found.doubled, found.swapped) == (1 + 5, 1 + 1, 1)
    assert found.has_failed
    assert found.rate == pytest.approx(len(rows) / 10)
    assert found.by_second == [0, 0, len(rows), *[0] * 7]
    assert found.latency == pytest.approx([1.5] * 3)
    assert found.cores == pytest.approx(
        dict.fromkeys(("initiator1 server", "initiator2 server", "target server"), 0.25)
    )
    assert found.wal_per_message == pytest.approx(
        {"initiator1": 1200 / found.rate, "initiator2": 1200 / found.rate, "target": 600 / found.rate}
    )
    assert found.waits == {
        "initiator1": [("LWLock:WALWrite", 0.5), ("LWLock:BufferContent", 0.25), ("running", 0.25)],
        "initiator2": [],
        "target": [("Timeout:PgSleep", 1.0)],
    }
    assert found.bound_by == "the quota of the target server"


def test_row_172_tells_what_a_receive_brought_and_row_178_how_rates_grow() -> None:
    cell = Cell("whitepaper", 18, 1, 10, 1, 1024)
    found = [
        outcome(cell, 400, per_receive=12.5),
        outcome(Cell("top-1", 18, 1, 10, 1, 1024), 390),
        outcome(Cell("whitepaper", 18, 2, 10, 1, 1024), 800),
        outcome(Cell("whitepaper", 18, 3, 10, 1, 1024), 1000),
    ]
    assert "12.5 messages a RECEIVE" in answer(172, found)
    assert "1.0 a RECEIVE" in answer(172, found)
    assert "2: 800/s, 2.0 times one's (whitepaper 12,000, 2.4 times)" in answer(178, found)
    assert "3: 1,000/s, 2.5 times one's (whitepaper 18,000, 3.6 times)" in answer(178, found)


def test_row_175_says_whether_sessions_wait_for_a_page() -> None:
    def pair(every: float, spaced: float) -> list[Outcome]:
        return [
            outcome(
                Cell("whitepaper", 18, 3, 50, ratio, 100),
                100,
                waits={
                    "initiator1": [("LWLock:WALWrite", 1 - part), ("LWLock:BufferContent", part)],
                    "target": [("running", 1.0)],
                },
            )
            for ratio, part in ((1, every), (150, spaced))
        ]

    assert "no hot page" in answer(175, pair(0.01, 0.0))
    assert "20.0% of what" in answer(175, pair(0.2, 0.05))
    assert "spacing them helps" in answer(175, pair(0.2, 0.05))
    assert "does not keep them from it" in answer(175, pair(0.2, 0.19))
    assert "most for LWLock:WALWrite: 80% and 81%" in answer(175, pair(0.2, 0.19))


def test_what_gathered_is_beside_the_run_that_processes_at_the_same_time() -> None:
    found = [
        outcome(Cell("deferred", 18, 1, 10, 1, 100), 9000, sent=1_000_000, send_rate=700),
        outcome(Cell("whitepaper", 18, 1, 10, 1, 100), 400),
        outcome(Cell("deferred-batches", 18, 1, 10, 1, 100), 8000, sent=50_000, send_rate=5000),
    ]
    assert [row[1:] for row in backlogs(found)] == [
        ("1,000,000", "700", "9,000", "400"),
        ("50,000", "5,000", "8,000", "not run"),
    ]
    assert backlogs(found[1:2]) == []


def test_a_rate_is_told_for_each_core_that_is_there_and_for_each_that_was_busy() -> None:
    one = outcome(Cell("whitepaper", 18, 2, 10, 1, 100), 900, cores={"target server": 0.6})
    machine = "4 cores of somebody, 8 GiB, Linux"
    limited = Finished(Conditions("containers", 1, 2, machine), [one], {18: QUOTAS})
    assert core_words(limited, one).startswith("600 messages/s a core present (1.5: their quotas)")
    assert core_words(limited, one).endswith("1,500 a core.")
    free = outcome(Cell("unlimited", 18, 2, 10, 1, 100), 900)
    assert "225 messages/s a core present (4: the machine" in core_words(limited, free)
    assert "not known" in core_words(Finished(Conditions("urls", 1, 2, machine), [one], {}), one)


def test_the_page_takes_the_headline_of_the_first_run_and_answers_of_all(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    page = docs / "whitepaper.md"
    page.write_text("Before.\n")
    matrix = Results(tmp_path / "matrix", "containers, quotas", Timing())
    others = Results(tmp_path / "others", "embedded", Timing())
    # The same cell, under other conditions: neither is compared with what the other directory has.
    for results, rate in ((matrix, 400.0), (others, 5000.0)):
        results.note_servers(18, {"server_version": "18.1", **QUOTAS})
        results.add(outcome(Cell("whitepaper", 18, 1, 10, 150, 1024), rate))
    others.add(outcome(Cell("top-1", 18, 1, 10, 150, 1024), 4900))
    write_documentation(tmp_path / "matrix", docs, [tmp_path / "others"])
    text = page.read_text()
    assert "Run 1: 1 of the 264 cells, on containers, quotas, PostgreSQL 18.1" in text
    assert "Run 2: 1 of the 264 cells and 1 cell of the series top-1, on embedded" in text
    assert "| 1 | 400 | 1x10 threads" in text
    assert "| 172 | RECEIVE TOP (N), not TOP (1) | 2 |" in text
    assert "TOP (10000) 5,000/s" in text
    assert "| 178 | One, two, three initiators | 1 | 1: 400/s" in text
    assert (docs / "whitepaper" / "figure-2.svg").exists()
    assert "![Figure 2](whitepaper/figure-2.svg)" in text
    assert "400 messages/s, whitepaper-18-1x10-150-1024" in write_report(matrix).read_text()
    with pytest.raises(SystemExit, match="no finished cells"):
        write_documentation(tmp_path, docs)
