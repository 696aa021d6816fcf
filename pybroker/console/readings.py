"""How often open pages read a database anew: all of them together take a hundredth of a core."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

SHORTEST_SECONDS, LONGEST_SECONDS = 2.0, 60.0
_SHARE = 0.01
_UNASKED_SECONDS = 2 * LONGEST_SECONDS
_PAGES = 200


@dataclass
class _Kept:
    lock: threading.Lock = field(default_factory=threading.Lock)
    found: Any = None
    spent: float = 0.0
    read_at: float = 0.0
    asked_at: float = 0.0


class Together:
    """The readings of all roles that are logged in: what their pages cost is shared out among all pages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: WeakSet[Readings] = WeakSet()

    def add(self, readings: Readings) -> None:
        """Count these too, for as long as somebody has them."""
        with self._lock:
            self._all.add(readings)

    def wait(self) -> float:
        """Return after how many seconds an open page may ask again."""
        with self._lock:
            everybody = list(self._all)
        spent = sum(one.spent() for one in everybody)
        return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, spent / _SHARE))


class Readings:
    """What was last read for each address. Open pages share it; who opens a page reads anew."""

    def __init__(self, together: Together) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._together = together
        together.add(self)

    def of(self, address: str, read: Callable[[], Any], *, is_refresh: bool) -> Any:
        """Return what `read` finds, or for an open page what it found a little while ago."""
        wait = self.wait()
        now = time.monotonic()
        with self._lock:
            kept = self._kept.setdefault(address, _Kept())
            kept.asked_at = now
            self._kept.move_to_end(address)
            while (
                len(self._kept) > _PAGES or now - next(iter(self._kept.values())).asked_at > _UNASKED_SECONDS
            ):
                self._kept.popitem(last=False)
        with kept.lock:
            # Whoever waited for the lock gets what its holder read.
            if is_refresh and kept.found is not None and time.monotonic() - kept.read_at < wait:
                return kept.found
            began = time.monotonic()
            kept.found = None
            try:
                kept.found = read()
            finally:
                kept.read_at = time.monotonic()
                kept.spent = kept.read_at - began
            return kept.found

    def wait(self) -> float:
        """Return after how many seconds an open page may ask again."""
        return self._together.wait()

    def spent(self) -> float:
        """Return the seconds that one reading of each open page takes."""
        now = time.monotonic()
        with self._lock:
            asked = [one for one in self._kept.values() if now - one.asked_at < _UNASKED_SECONDS]
            return sum(one.spent for one in asked)
