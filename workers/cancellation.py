"""Ends tasks that may forget that they were cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_AGAIN_SECONDS = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until all of them are over.

    Once is not enough: a task that is handed a connection of the pool at that moment forgets it. The caller's
    own cancellation waits until they are over, or they would go on without anybody who knows of them.
    """
    pending = {task for task in tasks if not task.done()}
    interrupted: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending, timeout=_AGAIN_SECONDS)
        except asyncio.CancelledError as cancelled:
            interrupted = cancelled
        pending = {task for task in pending if not task.done()}
    if interrupted is not None:
        raise interrupted
