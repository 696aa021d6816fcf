"""The worker's clock: who waits, or asks for the time, goes through one object, so that a test owns time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime


class Clock:
    """The real clock. Seconds everywhere."""

    def monotonic(self) -> float:
        """Return seconds since some moment in the past; never goes back."""
        return time.monotonic()

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait until `event` is set, at most `seconds`; return whether it is set."""
        waiting = asyncio.ensure_future(event.wait())
        passing = asyncio.ensure_future(self.sleep(seconds))
        try:
            await asyncio.wait((waiting, passing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in (waiting, passing):
                future.cancel()
            # Not by awaiting them: a cancellation of the caller could not be told from theirs, and be lost.
            await asyncio.wait((waiting, passing))
        return event.is_set()


@dataclass
class Backoff:
    """How long to wait before the next attempt: each failure in a row doubles it.

    Attributes:
        first: seconds after the first failure.
        limit: seconds that are never exceeded.
    """

    first: float
    limit: float
    _next: float | None = field(default=None, init=False)

    def failed(self) -> float:
        """Note a failure, and return the seconds to wait because of it."""
        seconds = self.first if self._next is None else self._next
        self._next = min(seconds * 2, self.limit)
        return seconds

    def reset(self) -> None:
        """Note a success: the next failure is a first one."""
        self._next = None
