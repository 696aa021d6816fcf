"""What readings say together: whether a queue falls, and when it is empty."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pybroker.console.history import History, Lately
from pybroker.status_readings import BrokerReading, QueueReading, Reading

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def reading(
    second: float, ready: int, *, oldest: float | None = None, is_estimate: bool = False, queues: int = 1
) -> Reading:
    """One of a database whose queues have so many messages; the oldest came at a second."""
    now = BEGIN + timedelta(seconds=second)
    came = None if oldest is None else BEGIN + timedelta(seconds=oldest)
    broker = BrokerReading(
        read_at=now, database="shop", service_broker_guid="", is_broker_enabled=True, transmission_queue=0,
        quarantined=0, retried=0, connections=0, has_worker=True, role="role", is_limited=False, enqueued=ready,
        dequeued=0,
    )  # fmt: skip
    first = QueueReading(
        queue="q", is_enabled=True, monitor=None, max_readers=None, ready=ready, retained=0, incomplete=0,
        is_estimate=is_estimate, oldest_enqueue_time=came, quarantined=0, tasks_running=0, tasks_started=0,
        task_limit_reached=0,
    )  # fmt: skip
    others = [replace(first, queue=f"q{number}") for number in range(1, queues)]
    return Reading(broker, (first, *others), (), (), ())


def lately(*readings: Reading) -> Lately:
    history = History()
    return [history.add(one) for one in readings][-1]


@pytest.mark.parametrize(
    ("before", "now", "change", "drain"),
    [
        (100, 80, -2.0, 40.0),
        (100, 120, 2.0, None),
        (100, 100, 0.0, None),
        (100, 0, -10.0, None),
    ],
)
def test_a_queue_that_falls_is_empty_after_its_depth_by_its_change(
    before: int, now: int, change: float, drain: float | None
) -> None:
    trend = lately(reading(0, before), reading(10, now)).of("q")
    assert (trend.change, trend.drain_seconds) == (change, drain)


def test_a_deep_queue_is_judged_by_the_age_of_its_oldest_message() -> None:
    # In ten seconds readers come thirty nearer, and the present runs ten away: 280 are left.
    early = reading(300, 50_000, oldest=0, is_estimate=True)
    trend = lately(early, reading(310, 50_000, oldest=30, is_estimate=True)).of("q")
    assert (trend.change, trend.depth, trend.drain_seconds) == (None, None, 140.0)
    still = lately(early, reading(310, 50_000, oldest=5, is_estimate=True)).of("q")
    assert still.drain_seconds is None, "messages come faster than they go"


def test_one_reading_or_a_counter_that_was_reset_says_no_wrong_rate() -> None:
    assert lately(reading(0, 5)).of("q").change is None
    assert lately(reading(0, 5)).of("another").change is None
    reset = lately(reading(0, 500), reading(2, 1), reading(4, 3)).enqueued
    assert reset is not None
    assert (reset.least, reset.most) == (0.0, 1.0)


def test_a_line_is_drawn_within_its_box() -> None:
    drawn = lately(reading(0, 0), reading(2, 10), reading(4, 5)).of("q").depth
    assert drawn is not None
    assert drawn.points == "1.0,19.0 48.0,1.0 95.0,10.0"
    assert (drawn.least, drawn.most, drawn.seconds) == (0.0, 10.0, 4.0)


def test_what_is_kept_has_a_bound() -> None:
    history = History()
    for second in range(1_000):
        found = history.add(reading(second, second))
    depth = found.of("q").depth
    assert depth is not None
    assert depth.seconds < 100
    wide = History()
    for second in range(15):
        found = wide.add(reading(second, second, queues=2_000))
    depth = found.of("q").depth
    assert depth is not None
    assert depth.seconds <= 9, "many queues have a shorter past"
