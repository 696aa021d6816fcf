"""When the next batch to a destination leaves: whether its fixed cost is worth a wait for more messages.

The first message after idleness leaves at once, and so does one that no other would join. While messages
flow, the next batch is taken a pause after the last one. The pause follows how long a batch takes to be
taken: a few milliseconds where the database has time left, and up to the operator's `linger` where it has
none, as each batch that is saved lets more be sent. What waits stays in its table, where it keeps its place
behind what is more urgent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.workers.clock import Clock

# A batch costs about as much as so many messages: with them in it, waiting for more gains little.
WORTH_MESSAGES = 50
# A pause that would gather fewer is left out: a request and its answer must not wait for each other.
FEWEST_GATHERED = 3
# A pause is so many times as long as a batch took to be taken. That says what a batch costs just now, and how
# long it waited for a processor or a disk, wherever the database is and whatever quota it has.
TIMES_TAKING = 10
# How much the newest batch counts for the rate, and for the time.
_NEWEST = 0.5
# After a longer time without a batch its destination was idle.
_IDLE_SECONDS = 0.5


class Linger:
    """The pauses between the batches to one destination."""

    def __init__(self, longest: float, clock: Clock) -> None:
        """Prepare.

        Args:
            longest: seconds that no message waits longer than for others; 0 is no pause at all.
            clock: says when batches were taken.
        """
        self._longest = longest
        self._clock = clock
        self._taken_at: float | None = None
        self._rate = 0.0
        self._seconds = 0.0

    def taken(self, messages: int, seconds: float) -> None:
        """Note that a batch was taken with so many messages, in so many seconds; 0 if none waited."""
        now = self._clock.monotonic()
        if messages:
            self._seconds += (seconds - self._seconds) * _NEWEST
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
        # No longer than until it is worth it, at the rate of late.
        worth = WORTH_MESSAGES / self._rate if self._rate else 0.0
        longest = min(self._longest, TIMES_TAKING * self._seconds, worth)
        if self._rate * longest < FEWEST_GATHERED:
            return 0.0
        return max(self._taken_at + longest - self._clock.monotonic(), 0.0)
