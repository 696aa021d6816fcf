"""What a part of the worker waits for while it has nothing to do."""

from __future__ import annotations

import asyncio

# Between two looks of one whose work somebody else finds: only what he overlooked is left for them.
WATCHED_SECONDS = 60.0


class Arrivals(asyncio.Event):
    """Set when there may be something to do; its waiter clears it before it looks.

    Attributes:
        are_watched: whether somebody sets it whenever there is. Else the waiter has to look by itself, often.
    """

    are_watched = False

    def pause(self, seconds: float) -> float:
        """Return how long to wait for the next look, where these seconds are for one who is not watched."""
        return max(seconds, WATCHED_SECONDS) if self.are_watched else seconds
