"""Turns: whoever guesses passwords from one address, or acts without end, keeps nobody else out."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict, deque

WINDOW_SECONDS = 60.0
_ADDRESSES = 10_000


class Attempts:
    """Attempts of the last minute by address; of very many addresses the longest unseen are forgotten."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._lock = threading.Lock()
        self._by_address: OrderedDict[str, deque[float]] = OrderedDict()

    def is_allowed(self, address: str) -> bool:
        """Count an attempt of this address, unless it has had its turns of this minute."""
        now, key = time.monotonic(), _network(address)
        with self._lock:
            seen = self._by_address.setdefault(key, deque())
            self._by_address.move_to_end(key)
            while seen and now - seen[0] > WINDOW_SECONDS:
                seen.popleft()
            if len(seen) >= self._allowed:
                return False
            seen.append(now)
            if len(self._by_address) > _ADDRESSES:
                self._by_address.popitem(last=False)
            return True


def _network(address: str) -> str:
    """Return the address, or for IPv6 its /64, of which one customer has every address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 - IPv4
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))
