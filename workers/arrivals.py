"""What a part of the worker waits for while it has nothing to do."""

from __future__ import annotations

import asyncio


class Arrivals(asyncio.Event):
    """Set when messages may have arrived; its waiter clears it before it looks.

    Attributes:
        are_watched: whether somebody sets it for each message. Else the waiter has to look by itself, often.
    """

    are_watched = False
