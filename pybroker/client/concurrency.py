"""Where threads and asyncio differ: a pair of each name, the second without its ``async``.

The twin of an async module, as tests/sync_twin.py makes it, takes the second of each pair.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

AsyncLock = asyncio.Lock
# A transaction block is found by a context variable, which threads don't share.
Lock = nullcontext[None]

AsyncEvent = asyncio.Event
Event = threading.Event

sleep_async: Callable[[float], Awaitable[None]] = asyncio.sleep
sleep: Callable[[float], None] = time.sleep


async def wait_async(event: AsyncEvent, seconds: float) -> None:
    """Wait until the event is set, at most so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def wait(event: Event, seconds: float) -> None:
    """Wait until the event is set, at most so many seconds."""
    event.wait(seconds)
