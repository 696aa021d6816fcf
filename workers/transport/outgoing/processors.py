"""How much of their time this machine's processors have left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.workers.clock import Clock

# For so long the last answer stands: shorter, the kernel's ticks would be too few to tell a share.
_SECONDS = 0.25
_IDLE, _WAITS_FOR_DISK = 3, 4
_COLUMNS = 8


class Processors:
    """The share of processor time that nobody used lately."""

    def __init__(self, clock: Clock, file: Path = Path("/proc/stat")) -> None:
        """Prepare.

        Args:
            clock: says when to look again.
            file: the kernel's account of its processors' time; without it the load says what is left.
        """
        self._clock = clock
        self._file = file
        self._looked_at = float("-inf")
        self._before = (0, 0)
        self._left = 1.0

    def time_left(self) -> float:
        """Return the share, 0 to 1."""
        now = self._clock.monotonic()
        if now >= self._looked_at + _SECONDS:
            self._looked_at = now
            self._look()
        return self._left

    def _look(self) -> None:
        try:
            with self._file.open("rb") as file:
                # The first line is of all processors together.
                ticks = [int(column) for column in file.readline().split()[1 : 1 + _COLUMNS]]
        except (OSError, ValueError):
            ticks = []
        if len(ticks) < _COLUMNS:
            self._left = max(0.0, 1 - os.getloadavg()[0] / (os.cpu_count() or 1))
            return
        idle, total = ticks[_IDLE] + ticks[_WAITS_FOR_DISK], sum(ticks)
        idle_before, total_before = self._before
        if total > total_before:
            self._left = (idle - idle_before) / (total - total_before)
        self._before = idle, total
