"""A file whose age tells a container engine, or any other watcher, that the worker's event loop turns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pybroker.workers.clock import Clock

# Seconds. What watches the file should allow several of them: a busy machine is no dead worker.
PERIOD = 5.0


async def run(file: Path, clock: Clock) -> None:
    """Touch the file until cancelled; a database that is away does not stop it, as a restart would not help.

    Raises:
        OSError: the file can't be written.
    """
    while True:
        await asyncio.to_thread(file.touch)
        await clock.sleep(PERIOD)
