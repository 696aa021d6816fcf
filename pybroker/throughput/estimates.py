"""What several repetitions of a cell say together: means, and how far the truth may be from them."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import msgspec
import scipy

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
# With two, the interval is as wide as twelve of their distances, and one of them is often too narrow by luck.
FEWEST = 3


class Estimate(msgspec.Struct, frozen=True):
    """A figure from several repetitions.

    Attributes:
        mean: Of all repetitions.
        low: Where the interval of 95 % begins, by Student's t; None for a single repetition.
        high: Where it ends.
        count: Repetitions.
    """

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def relative(self) -> float | None:
        """Half of the interval's width as a part of the mean; None for a single repetition."""
        if self.low is None or self.high is None or not self.mean:
            return None
        return (self.high - self.low) / 2 / self.mean

    def is_within(self, precision: float) -> bool:
        """Whether there are repetitions enough, and their interval is so narrow."""
        return self.count >= FEWEST and self.relative is not None and self.relative < precision


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one or more values and its confidence interval."""
    mean = fmean(values)
    if len(values) == 1:
        return Estimate(mean, None, None, 1)
    error = float(scipy.stats.sem(values))
    if not error:
        return Estimate(mean, mean, mean, len(values))
    low, high = scipy.stats.t.interval(CONFIDENCE, len(values) - 1, loc=mean, scale=error)
    return Estimate(mean, float(low), float(high), len(values))
