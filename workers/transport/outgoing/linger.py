"""When the next batch to a destination leaves: whether its fixed cost is worth a wait for more messages.

The first message after idleness leaves at once, and so does one that no other would join. While messages
flow, the next batch is taken a pause after the last one. The pause is short while processors have time left,
and the operator's whole `linger` when they have none: then each batch that is saved lets more be sent. What
waits stays in its table, where it keeps its place behind what is more urgent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.workers.clock import Clock

# A batch costs about as much as so many messages: with them in it, waiting for more gains little.
WORTH_MESSAGES = 50
# A pause that would gather fewer is left out: a request and its answer must not wait for each other.
FEWEST_GATHERED = 3
# Of the longest pause, this is waited for while processors have time left.
SHORTEST_SHARE = 0.1
# With a larger share of their time left they have enough.
ENOUGH_LEFT = 0.25
# How much the newest batch counts for the rate.
_NEWEST = 0.5
# After a longer time without a batch its destination was idle.
_IDLE_SECONDS = 0.5


class Linger:
    """The pauses between the batches to one destination."""

    def __init__(self, longest: float, clock: Clock, time_left: Callable[[], float]) -> None:
        """Prepare.

        Args:
            longest: seconds that no message waits longer than for others; 0 is no pause at all.
            clock: says when batches were taken.
            time_left: returns which share of their time processors have left, 0 to 1.
        """
        self._longest = longest
        self._clock = clock
        self._time_left = time_left
        self._taken_at: float | None = None
        self._rate = 0.0

    def taken(self, messages: int) -> None:
        """Note that a batch was taken with so many messages; 0 if none waited."""
        now = self._clock.monotonic()
        if self._taken_at is not None and (since := now - self._taken_at) <= _IDLE_SECONDS:
            # What comes at once after a look is part of the same burst.
            newest = messages / max(since, 0.001)
            self._rate += (newest - self._rate) * _NEWEST
        else:
            self._rate = 0.0
        self._taken_at = now

    def pause(self, messages: int) -> float:
        """Return how many seconds the batch after this one, of so many messages, is to be waited for."""
        if self._taken_at is None or self._longest <= 0 or messages >= WORTH_MESSAGES:
            return 0.0
        lack = 1 - min(self._time_left() / ENOUGH_LEFT, 1)
        share = SHORTEST_SHARE + (1 - SHORTEST_SHARE) * lack
        # No longer than until it is worth it, at the rate of late.
        longest = min(self._longest * share, WORTH_MESSAGES / self._rate if self._rate else 0.0)
        if self._rate * longest < FEWEST_GATHERED:
            return 0.0
        return max(self._taken_at + longest - self._clock.monotonic(), 0.0)
