"""How often `pybroker throughput` runs a cell, what it says of the repetitions, and what it says bounded a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests import missing

pytest.importorskip("pyspark", reason=missing.reason("pyspark", "make .venv/.spark"))

from pybroker.throughput.analysis import ALL_ROLES, ROLES, Outcome, Work
from pybroker.throughput.bounds import bound
from pybroker.throughput.estimates import estimate
from pybroker.throughput.failures import ThroughputError
from pybroker.throughput.matrix import Cell, Effort, Timing
from pybroker.throughput.model import Hardware, Model
from pybroker.throughput.results import Results

if TYPE_CHECKING:
    from pathlib import Path

CELL = Cell("whitepaper", 18, 1, 5, 150, 100)
OTHER = Cell("whitepaper", 18, 1, 10, 150, 100)


def outcome(cell: Cell, repetition: int, each: int, **others: Any) -> Outcome:
    """Each role does so many messages a processor-second."""
    plain: dict[str, Any] = {
        "sent": 100, "lost": 0, "doubled": 0, "swapped": 0, "rate": 100.0, "by_second": [100], "send_rate": 100.0, "latency": [], "from_send": [],
        "receives": 10, "per_receive": 10.0, "readers": 1, "cores": {}, "wal_per_message": {}, "waits": {}, "bound_by": "clients", "seconds": 1.0,
    }  # fmt: skip
    work = {role: Work(each, 1.0) for role in ROLES}
    return Outcome(cell=cell, repetition=repetition, work=work, **{**plain, **others})


def test_an_interval_is_student_s_and_one_value_has_none() -> None:
    found = estimate([10.0, 12.0, 14.0])
    assert (found.mean, found.count) == (12.0, 3)
    assert found.low == pytest.approx(12 - 4.3027 * 1.1547, abs=0.01)
    assert found.high == pytest.approx(12 + 4.3027 * 1.1547, abs=0.01)
    single = estimate([10.0])
    assert (single.low, single.relative, single.is_within(1.0)) == (None, None, False)
    assert estimate([7.0, 7.0, 7.0]).is_within(0.05)
    # Two that agree by chance say little.
    assert not estimate([7.0, 7.0]).is_within(0.05)


def test_a_cell_is_repeated_until_it_is_known_well_or_its_budget_is_used_up(tmp_path: Path) -> None:
    results = Results(tmp_path, "embedded", Timing())
    effort = Effort(repetitions=4, precision=0.05)
    assert results.due([CELL, OTHER], effort) == {CELL: 0, OTHER: 0}
    for repetition, (steady, scattered) in enumerate([(1000, 500), (1001, 900), (1002, 1500)], 1):
        results.add(outcome(CELL, repetition, steady))
        results.add(outcome(OTHER, repetition, scattered))
    assert results.due([CELL, OTHER], effort) == {OTHER: 3}
    results.add(outcome(OTHER, 4, 700))
    assert results.due([CELL, OTHER], effort) == {}
    assert results.due([OTHER], Effort(repetitions=5)) == {OTHER: 4}
    merged = {one.cell: one for one in results.outcomes()}
    assert merged[CELL].repetition == 3
    assert merged[CELL].sent == 300
    # Four roles of a thousand each: a message costs each of them a millisecond.
    assert merged[CELL].estimates[ALL_ROLES].mean == pytest.approx(250, rel=0.01)
    assert merged[CELL].estimates["target worker"].is_within(0.05)


def test_a_repetition_that_lost_a_message_fails_its_cell(tmp_path: Path) -> None:
    results = Results(tmp_path, "embedded", Timing())
    results.add(outcome(CELL, 1, 1000, lost=1))
    results.add(outcome(CELL, 2, 1000, others=0.4))
    (found,) = results.outcomes()
    assert found.has_failed
    assert found.is_disturbed


FREE: dict[str, Any] = {"quotas": {}, "cores": {}, "machine": 0.5, "others": 0.0, "clients": 0.2, "waits": {}}


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"quotas": {"target worker": 0.1}, "cores": {"target worker": 0.099}}, "quota of the target worker"),
        ({"cores": {"initiator1 worker": 0.97}}, "the processor of the initiator1 worker"),
        ({"cores": {"initiator1 server": 1.4}, "machine": 0.95}, "the machine's processors"),
        ({"machine": 0.95, "others": 0.4}, "with what other programs used"),
        ({"clients": 0.95}, "the test clients"),
        ({"waits": {"target": [("IO:WalSync", 0.4), ("LWLock:WALWrite", 0.2)]}}, "flushes to the disk of target"),
        ({"waits": {"target": [("running", 0.8), ("Lock:tuple", 0.2)]}}, "Lock:tuple at the target"),
        ({"waits": {"target": [("running", 1.0)]}}, "number of clients"),
    ],
)  # fmt: skip
def test_what_bounds_a_cell_is_told_from_what_was_measured(measured: dict[str, Any], words: str) -> None:
    assert words in bound(**{**FREE, **measured})


def costing(initiators: int, threads: int, payload: int) -> Outcome:
    """What costs each role 100 µs for a message, more with initiators, less with threads, more with bytes."""
    cost = 100e-6 * initiators**0.5 * threads**-0.1 * 2 ** (payload / 8192)
    cell = Cell("whitepaper", 18, initiators, threads, 150, payload)
    return msgspec.structs.replace(
        outcome(cell, 1, 1), work={role: Work(1_000_000, 1e6 * cost) for role in ROLES}
    )


def test_a_model_of_one_and_two_initiators_predicts_three_that_it_has_not_seen() -> None:
    shapes = [(threads, payload) for threads in (1, 5, 15) for payload in (100, 4096)]
    seen = [costing(initiators, *shape) for initiators in (1, 2) for shape in shapes]
    model = Model([*seen, *(costing(3, *shape) for shape in shapes)])
    assert model.cells == 12
    assert len(model.predictions()) == 6
    for found in model.predictions():
        assert found.error == pytest.approx(0, abs=1e-6)
    # A cell of three initiators that differs changes the error, and nothing of the model.
    odd = msgspec.structs.replace(costing(3, 1, 100), work={role: Work(1_000_000, 1000.0) for role in ROLES})
    assert Model([*seen, odd]).predictions()[0].error != pytest.approx(0, abs=0.1)
    assert Model([*seen, odd]).cost(ROLES[0], 3, 1, 100) == model.cost(ROLES[0], 3, 1, 100)


def test_a_model_tells_which_part_is_the_least() -> None:
    model = Model([costing(n, t, p) for n in (1, 2) for t in (1, 5, 15) for p in (100, 4096)])
    (slow,) = model.capacities(Hardware(flush=1.0, threads=5), [1])
    assert slow.bound_by == "clients, who wait for flushes"
    assert slow.rate.mean == pytest.approx(5, rel=0.01)
    (small,) = model.capacities(Hardware(cores=0.5), [1])
    assert "processors" in small.bound_by
    rates = model.capacities(Hardware(), range(1, 17))
    assert [one.initiators for one in rates] == list(range(1, 17))
    assert "target" in rates[-1].bound_by
    for one in rates:
        assert one.rate.low is not None
        assert one.rate.high is not None
        assert one.rate.low <= one.rate.mean <= one.rate.high
    with pytest.raises(ThroughputError, match="--quick"):
        Model([costing(1, 1, 100)])
