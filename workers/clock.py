"""The worker's clock: who waits, or asks for the time, goes through one object, so that a test owns time."""

from __future__ import annotations

import asyncio
import time
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
