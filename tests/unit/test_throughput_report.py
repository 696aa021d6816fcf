"""What `pybroker throughput` tells of its cells: the answers; tests/system/test_spark.py has the accounts of every message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import lxml.etree
import lxml.html
import pytest

from tests import missing

pytest.importorskip("pyspark", reason=missing.reason("pyspark", "make .venv/.spark"))

from pybroker.throughput.analysis import ROLES, Outcome, Work
from pybroker.throughput.answers import answers
from pybroker.throughput.costs import costs
from pybroker.throughput.figures import throughput_figure
from pybroker.throughput.matrix import Cell, Effort, Timing
from pybroker.throughput.report import backlogs, core_words, write_report
from pybroker.throughput.results import Conditions, Finished, Results
from tests.whitepaper import main as write_documentation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)

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
    assert "20.0% of the time with every dialog" in answer(175, pair(0.2, 0.05))
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
    assert "| 1 | - | 400, 1x10 threads" in text
    assert "| RECEIVE TOP (N), not TOP (1) | 2 |" in text
    assert "TOP (10000) 5,000/s" in text
    assert "| One, two, three initiators | 1 | 1: 400/s" in text
    assert (docs / "whitepaper" / "figure-2.svg").exists()
    assert "![Figure 2](whitepaper/figure-2.svg)" in text
    assert "400 messages/s, whitepaper-18-1x10-150-1024" in write_report(matrix).read_text()
    with pytest.raises(SystemExit, match="no finished cells"):
        write_documentation(tmp_path, docs)


def test_the_page_needs_nothing_from_elsewhere_and_says_on_top_what_was_found(tmp_path: Path) -> None:
    results = Results(tmp_path, "embedded", Timing())
    for threads in (1, 2, 50):
        for ratio in (1, 150):
            for repetition, each in enumerate((1000, 1010, 4000 * threads), 1):
                results.add(
                    outcome(
                        Cell("whitepaper", 18, 1, threads, ratio, 100),
                        rate=20_000.0 / repetition,
                        repetition=repetition,
                        work={role: Work(each, 1.0) for role in ROLES},
                        others=0.5 if threads == 2 else 0.0,
                        bound_by="<script>alert(1)</script>",
                        per_batch=float(threads),
                    )
                )
    text = write_report(results, Effort(repetitions=3)).read_text()
    assert 'class="finding">A second of one processor carries' in text
    assert "0 of 6 cells are known within ±5%; 6 are not, and have run 3 times" in text
    assert "In 2 other programs used more than" in text
    # Names come from servers, and a page is opened where scripts run.
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    for element in lxml.html.fromstring(text).iter():
        assert not {"src", "href"} & {name for name, value in element.items() if not value.startswith("#")}, (
            element.tag
        )
    assert "@import" not in text
    # What nobody but us knows is no talk for a report.
    assert not re.search(r"rows? 1\d\d|prototype|aimed at", text)


def test_a_figure_has_a_tick_for_each_number_of_threads_and_clips_no_point() -> None:
    found = [
        outcome(Cell("whitepaper", 18, 1, threads, 150, payload), 100.0 * threads + payload)
        for threads in (1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50)
        for payload in (100, 1024)
    ]
    figure = throughput_figure(found, 1, 150)
    assert figure is not None
    picture = lxml.etree.fromstring(figure.svg.encode())
    words = ["".join(text.itertext()).strip() for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    ticks = words[: words.index("test client threads for each initiator")]
    assert ticks == [str(threads) for threads in (1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50)]
    assert figure.svg.count('class="point"') == len(found)
    width, height = (float(size) for size in picture.get("viewBox", "").split()[2:])
    points = [
        use
        for group in picture.iter("{http://www.w3.org/2000/svg}g")
        if group.get("class") == "point"
        for use in group.iter("{http://www.w3.org/2000/svg}use")
    ]
    assert len(points) == len(found)
    for point in points:
        assert 0 <= float(point.get("x", -1)) <= width
        assert 0 <= float(point.get("y", -1)) <= height
        parent = point.getparent()
        assert parent is not None
        assert parent.get("clip-path") is None
    assert figure.lines == ["100 bytes", "1K"]


def test_costs_of_a_batch_and_of_a_message_are_told_apart() -> None:
    # 200 µs a message and 1,000 a batch.
    found = [
        outcome(
            Cell("whitepaper", 18, 1, threads, 150, 100),
            100,
            per_batch=float(batch),
            per_receive=float(batch),
            work={role: Work(1_000_000, 200.0 + 1_000.0 / batch) for role in ROLES},
        )
        for threads, batch in ((1, 1), (2, 2), (3, 5), (4, 10), (5, 100))
    ]
    assert [cost.role for cost in costs(found)] == list(ROLES)
    for cost in costs(found):
        assert (cost.message, cost.batch) == (pytest.approx(200), pytest.approx(1000))
        assert cost.of(4) == pytest.approx(450)
    assert costs(found[:3]) == []
    assert "a message costs the" in next(
        words for _, question, words in answers(found) if "bottleneck" in question
    )
