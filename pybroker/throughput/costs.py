"""What a message costs each role: something for itself, and its share of what a batch costs."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import scipy

from pybroker.throughput.analysis import ROLES
from pybroker.throughput.estimates import CONFIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pybroker.throughput.analysis import Outcome

# Two unknowns; with fewer cells, or with batches that are all alike, a line through them says nothing.
_FEWEST, _SPREAD = 4, 1.5


class Cost(msgspec.Struct, frozen=True):
    """Microseconds of a processor, from a line through many cells, each with its half interval of 95 %.

    Attributes:
        role: One of ROLES.
        message: For a message itself.
        message_error: Half of the interval's width.
        batch: For a batch, however many messages are in it.
        batch_error: Half of the interval's width.
        fit: The part of the scatter that the line explains, 0 to 1.
        cells: How many cells the line goes through.
        payload: Bytes of a message in all of them.
        smallest: Messages a batch in the cell with the smallest.
        largest: In the one with the largest.
    """

    role: str
    message: float
    message_error: float
    batch: float
    batch_error: float
    fit: float
    cells: int
    payload: int
    smallest: float
    largest: float

    def of(self, per_batch: float) -> float:
        """Return the microseconds of a message in batches of so many."""
        return self.message + self.batch / per_batch


def costs(outcomes: Iterable[Outcome]) -> list[Cost]:
    """Return the cost of each role whose cells differ enough in their batches; of the commonest payload."""
    usable = [one for one in outcomes if one.cell.series == "whitepaper" and one.per_batch]
    if not usable:
        return []
    payload = Counter(one.cell.payload for one in usable).most_common(1)[0][0]
    found = (_cost(role, payload, [one for one in usable if one.cell.payload == payload]) for role in ROLES)
    return [cost for cost in found if cost is not None]


def batch_of(role: str, one: Outcome) -> float | None:
    """Return how many messages a role handles at a time: of the target's server those of a RECEIVE."""
    return one.per_receive if role == "target server" else one.per_batch


def _cost(role: str, payload: int, outcomes: Sequence[Outcome]) -> Cost | None:
    points = [
        (batch, 1e6 / each)
        for one in outcomes
        if (batch := batch_of(role, one)) and (each := one.per_processor_second.get(role))
    ]
    batches = [batch for batch, _ in points]
    if len(points) < _FEWEST or max(batches) < _SPREAD * min(batches):
        return None
    line = scipy.stats.linregress([1 / batch for batch in batches], [cost for _, cost in points])
    wide = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(points) - 2))
    return Cost(
        role=role,
        message=float(line.intercept),
        message_error=wide * float(line.intercept_stderr),
        batch=float(line.slope),
        batch_error=wide * float(line.stderr),
        fit=float(line.rvalue) ** 2 if not math.isnan(line.rvalue) else 0.0,
        cells=len(points),
        payload=payload,
        smallest=min(batches),
        largest=max(batches),
    )
