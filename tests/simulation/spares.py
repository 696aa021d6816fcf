"""Sessions that are kept from seed to seed: a new one reads catalogs and makes plans for longer than it works.

They are opened by the process that forks the seeds. A seed lends them to whoever connects, first the one that was
given back last. Whoever closes one, or dies, leaves it rolled back and reset. Who has it next finds nothing of the
last one but the server's caches.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import psycopg.conninfo
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, ExecStatus

# In each database; few seeds open more.
_MOST = 16
_RESET = (
    b"rollback; set session authorization default; reset all; close all; unlisten *; deallocate all;"
    b" select pg_advisory_unlock_all(); discard temp; discard sequences"
)
_OWN = ("application_name",)


class Spares:
    """The sessions that are kept.

    Attributes:
        closed: a connection that is over.
    """

    def __init__(self) -> None:
        # Each connect of psycopg's reads the same text five times.
        psycopg.conninfo._parse_conninfo = cache(psycopg.conninfo._parse_conninfo)
        self._kept: dict[str, list[Any]] = {}
        self._next: Counter[str] = Counter()
        self._lost: list[tuple[str, int]] = []
        self._lent: dict[Any, tuple[str, int]] = {}
        # Those that were given back: each that is lent again has made its plans.
        self._returned: dict[str, list[int]] = {}
        self.closed: Any = pq.PGconn.connect_start(b"host=/nowhere")
        self.closed.finish()

    def lend(self, conninfo: str) -> Any:
        """Return a session, as new, for who wants to connect; None if none is left."""
        wanted = conninfo_to_dict(conninfo)
        own = {name: wanted.pop(name) for name in _OWN if name in wanted}
        key = make_conninfo("", **wanted)
        if returned := self._returned.get(key):
            place = returned.pop()
        else:
            place = self._next[key]
            self._next[key] += 1
        kept = self._kept.get(key, ())
        if place >= len(kept):
            return None
        pgconn = kept[place]
        self._lent[pgconn] = key, place
        for name, value in own.items():
            pgconn.exec_params(b"select set_config($1, $2, false)", [name.encode(), str(value).encode()])
        return pgconn

    def take_back(self, pgconn: Any) -> bool:
        """Make a session as new; return whether it could be."""
        result = pgconn.exec_(_RESET)
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            return False
        while pgconn.notifies() is not None:
            pass
        key, place = self._lent.pop(pgconn)
        self._returned.setdefault(key, []).append(place)
        return True

    def used(self) -> tuple[dict[str, int], list[tuple[str, int]]]:
        """Return how many were wanted, and which are over."""
        return dict(self._next), list(self._lent.values())

    def renew(self, wanted: dict[str, int], lost: list[tuple[str, int]]) -> None:
        """Open what the next seed may want, after one that said so by `used`."""
        for key, place in lost:
            self._kept[key][place].finish()
        for key, count in wanted.items():
            kept = [each for each in self._kept.get(key, ()) if each.status == ConnStatus.OK]
            while len(kept) < min(count, _MOST):
                kept.append(_connected(key))
            self._kept[key] = kept

    def close(self) -> None:
        """Close all."""
        for kept in self._kept.values():
            for pgconn in kept:
                pgconn.finish()
        self._kept.clear()


def _connected(conninfo: str) -> Any:
    pgconn = pq.PGconn.connect(conninfo.encode())
    assert pgconn.status == ConnStatus.OK, pgconn.error_message
    pgconn.nonblocking = 1
    return pgconn
