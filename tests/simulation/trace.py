"""What happened, in order: its hash is the same whenever the same seed is run."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT = 400


class Trace:
    """The events of one run."""

    def __init__(self, *, is_whole: bool = False) -> None:
        self._digest = hashlib.sha256()
        self.lines: deque[str] = deque(maxlen=None if is_whole else _KEPT)
        self.count = 0
        self.time: Callable[[], float] = lambda: 0.0

    def note(self, *what: object) -> None:
        """Add an event."""
        line = f"{self.time():.6f} {' '.join(map(str, what))}"
        self._digest.update(line.encode() + b"\n")
        self.lines.append(line)
        self.count += 1

    def comment(self, *what: object) -> None:
        """Show something between the events that is none, as it may be another one in the next run."""
        self.lines.append(f"{self.time():.6f} # {' '.join(map(str, what))}")

    @property
    def hash(self) -> str:
        """The digest of all of it."""
        return self._digest.hexdigest()[:16]
