"""How a database was lately: what open pages read of it, kept in memory with a bound."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pybroker.status_readings import QueueReading, Reading

# Rates are those of the last half minute, or of the last two readings.
_RATE_SECONDS = 30.0
_LONGEST_SECONDS = 3600.0
_SAMPLES, _NUMBERS = 90, 20_000
# In the picture's own unit.
_WIDTH, _HEIGHT = 96, 20


@dataclass(frozen=True)
class Spark:
    """A small line over time.

    Attributes:
        points: of an SVG polyline, in a box of width times height.
        least: the smallest value.
        most: the largest value.
        seconds: the time from its first to its last value.
    """

    points: str
    least: float
    most: float
    seconds: float
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True)
class Trend:
    """Where a queue goes.

    Attributes:
        change: messages a second by which it grows, below zero if it falls; None for an estimated depth.
        drain_seconds: until it is empty, if it goes on so; None if it does not fall.
        depth: its depth over time; None before the second reading, and for an estimated depth.
    """

    change: float | None
    drain_seconds: float | None
    depth: Spark | None


@dataclass(frozen=True)
class Lately:
    """What the last readings say together; rates are messages a second."""

    enqueued: Spark | None
    dequeued: Spark | None
    queues: dict[str, Trend]

    def of(self, queue: str) -> Trend:
        """The trend of a queue; an empty one for a queue that nobody read."""
        return self.queues.get(queue, Trend(None, None, None))


class History:
    """The last readings of one database as one role."""

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=_SAMPLES)

    def add(self, reading: Reading) -> Lately:
        """Keep a reading, and return what the last ones say."""
        kept = self._readings
        kept.append(reading)
        # Many queues have a shorter past.
        most = max(2, _NUMBERS // (1 + len(reading.queues)))
        while len(kept) > most or _seconds(kept[0], reading) > _LONGEST_SECONDS:
            kept.popleft()
        # Who dropped a queue and made it anew, or renamed it, begins anew.
        past: dict[str, list[tuple[Reading, QueueReading]]] = {}
        for one in kept:
            for queue in one.queues:
                past.setdefault(queue.queue, []).append((one, queue))
        return Lately(
            spark(_rates(kept, "enqueued")),
            spark(_rates(kept, "dequeued")),
            {queue.queue: _trend(past[queue.queue]) for queue in reading.queues},
        )


def spark(values: Sequence[tuple[datetime, float]]) -> Spark | None:
    """Draw values over time; None for less than two."""
    if len(values) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    began = values[0][0]
    numbers = [number for _, number in values]
    least, most = min(numbers), max(numbers)
    seconds = max((values[-1][0] - began).total_seconds(), 1e-6)
    # A line that is always the same lies at the bottom.
    height = max(most - least, 1e-9)
    points = [
        f"{1 + (_WIDTH - 2) * (moment - began).total_seconds() / seconds:.1f},"
        f"{1 + (_HEIGHT - 2) * (1 - (number - least) / height):.1f}"
        for moment, number in values
    ]
    return Spark(" ".join(points), least, most, seconds)


def _rates(readings: Sequence[Reading], counter: str) -> list[tuple[datetime, float]]:
    """Return a counter's rate between each two readings; one that was reset counts as 0."""
    found = []
    for before, now in zip(readings, list(readings)[1:], strict=False):
        more = getattr(now.broker, counter) - getattr(before.broker, counter)
        found.append((now.broker.read_at, max(more, 0) / max(_seconds(before, now), 1e-6)))
    return found


def _trend(past: Sequence[tuple[Reading, QueueReading]]) -> Trend:
    (last, now) = past[-1]
    recent = [one for one in past[:-1] if _seconds(one[0], last) <= _RATE_SECONDS] or past[-2:-1]
    if not recent:
        return Trend(None, None, None)
    first, before = recent[0]
    seconds = max(_seconds(first, last), 1e-6)
    if now.is_estimate or before.is_estimate:
        return Trend(None, _drain_by_age(before, now, last.broker.read_at, seconds), None)
    change = (now.ready - before.ready) / seconds
    exact = [(one.broker.read_at, float(queue.ready)) for one, queue in past if not queue.is_estimate]
    return Trend(change, now.ready / -change if change < 0 and now.ready else None, spark(exact))


def _drain_by_age(before: QueueReading, now: QueueReading, moment: datetime, seconds: float) -> float | None:
    """Tell when the oldest message is a new one, by how fast readers come nearer to the present.

    An estimate of the depth changes only with the planner's statistics; the age of the oldest is exact.
    """
    if before.oldest_enqueue_time is None or now.oldest_enqueue_time is None:
        return None
    read = (now.oldest_enqueue_time - before.oldest_enqueue_time).total_seconds() / seconds
    age = max((moment - now.oldest_enqueue_time).total_seconds(), 0.0)
    return age / (read - 1) if read > 1 else None


def _seconds(before: Reading, now: Reading) -> float:
    return (now.broker.read_at - before.broker.read_at).total_seconds()
