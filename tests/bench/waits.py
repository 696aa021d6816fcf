"""What the sessions at work are waiting for, looked at a few times a second while a scenario runs."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Self

import psycopg

if TYPE_CHECKING:
    from collections.abc import Sequence

PERIOD = 0.1
RUNNING = "running"
_MEANINGS = {
    "LWLock:WALWrite": "another session's flush of the WAL",
    "IO:WalSync": "its own flush of the WAL",
    "Lock:transactionid": "another transaction's end",
    "Lock:tuple": "its turn for a locked row",
    "LWLock:BufferContent": "a page that another session changes",
    "LWLock:WALInsert": "a place in the WAL",
    "IO:DataFileRead": "a page from the file",
    "Timeout:PgSleep": "a nap of its own",
}

# What the server's own processes do is in its processor time; autovacuum and the like answer nobody.
_LOOK = f"""
select coalesce(wait_event_type || ':' || wait_event, '{RUNNING}'), count(*)
from pg_stat_activity
where state = 'active' and backend_type = 'client backend' and pid <> pg_backend_pid() and wait_event is distinct from 'ClientRead'
group by 1
"""


def in_words(name: str) -> str:
    """Return a wait event with what it means, if that is known."""
    return f"{name} ({_MEANINGS[name]})" if name in _MEANINGS else name


def percent(part: float) -> str:
    """Return a part of a whole in words."""
    return f"{100 * part:.0f} %"


class Waits:
    """Looks at servers in a thread of its own, in a `with` statement."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._seen: Counter[str] = Counter()
        self._is_over = threading.Event()
        self._stack = ExitStack()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._sessions: list[psycopg.Connection[Any]] = []

    def __enter__(self) -> Self:
        for url in self._urls:
            session = closing(psycopg.connect(url, autocommit=True))
            self._sessions.append(self._stack.enter_context(session))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._stack.close()

    def shares(self) -> dict[str, float]:
        """Return what was seen, each as a part of all, the greatest first."""
        total = self._seen.total()
        return {name: count / total for name, count in self._seen.most_common()}

    def _watch(self) -> None:
        try:
            while not self._is_over.wait(PERIOD):
                for session in self._sessions:
                    self._seen.update(dict(session.execute(_LOOK.encode()).fetchall()))
        except psycopg.Error:
            # A server that is being stopped, as after Ctrl-C.
            return
