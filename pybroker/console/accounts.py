"""Accounts: a role and its password, and its sessions with the databases.

Every query of a page runs as the role that logged in. A password is kept in memory only, for as long as
somebody is logged in by it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pybroker.console.history import History, Lately
from pybroker.console.readings import Readings, Together
from pybroker.diagnosis.findings import Finding, findings_of
from pybroker.status_readings import Reading, Status, read, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")
# Each takes one of the forty threads that all roles share, and waits for the role's session.
_PAGES_AT_ONCE = 12
# What is done slowly, by a rate, holds its thread for up to a minute.
_DEEDS_AT_ONCE = 3
FRESH_SECONDS = 2.0
# The server must ask for the password. Otherwise trust, peer or a client certificate would let anybody in who
# reaches the console, as the account that runs it.
_ASKED = "scram-sha-256,md5,password"
# A page may not keep the database busy, and changes nothing: an action says that it writes.
# The driver reads dates as ISO only.
_OPTIONS = (
    "-c statement_timeout=5s -c lock_timeout=1s -c idle_in_transaction_session_timeout=10s -c jit=off"
    " -c default_transaction_read_only=on -c datestyle=ISO"
)


@dataclass(frozen=True)
class Target:
    """A database that the console shows: its place among the URLs, from 1, and its name."""

    number: int
    name: str
    conninfo: str

    @classmethod
    def of(cls, number: int, url: str) -> Target:
        """Take address and database from a URL, and nobody's role or password."""
        given = conninfo_to_dict(url)
        for secret in ("user", "password", "passfile", "sslcert", "sslkey", "sslpassword"):
            given.pop(secret, None)
        return cls(number, str(given.get("dbname") or ""), make_conninfo("", **given))


@dataclass(frozen=True)
class Overview:
    """What the overview shows of one database; rates need two readings."""

    status: Status
    findings: tuple[Finding, ...]
    has_rates: bool
    lately: Lately


@dataclass
class _Line:
    """One session with one database, and what was last read over it."""

    target: Target
    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: psycopg.Connection[Any] | None = None
    reading: Reading | None = None
    history: History = field(default_factory=History)
    overview: Overview | None = None
    read_at: float = 0.0


class Account:
    """A role with its password: all its open pages share one session and one reading of a database.

    Attributes:
        room: for the pages of the role that are read at the same time.
        deeds: for what it asked for and is being done at the same time.
    """

    def __init__(self, role: str, password: str, targets: tuple[Target, ...], together: Together) -> None:
        self.role = role
        self.readings = Readings(together)
        self.room = threading.BoundedSemaphore(_PAGES_AT_ONCE)
        self.deeds = threading.BoundedSemaphore(_DEEDS_AT_ONCE)
        self._password = password
        self._lines = {target.number: _Line(target) for target in targets}

    def enters(self) -> bool:
        """Tell whether at least one database lets the role in with its password."""
        for line in self._lines.values():
            try:
                with line.lock:
                    self._connected(line)
            except psycopg.Error:
                continue
            return True
        return False

    def ask(self, number: int, question: Callable[[psycopg.Connection[Any]], Found]) -> Found:
        """Ask a database one question.

        Raises:
            psycopg.OperationalError: the database can't be reached, or does not let the role in.
        """
        line = self._lines[number]
        with line.lock:
            return self._asked(line, question)

    def act(self, number: int, deed: Callable[[psycopg.Connection[Any]], Found]) -> Found:
        """Do something in a database once: if the session is lost, nobody knows whether it was done.

        Raises:
            psycopg.OperationalError: the session was lost, or can't be had.
        """
        line = self._lines[number]
        with line.lock:
            self._asked(line, lambda connection: connection.execute("select"))
            # What was read before it is old.
            line.overview = None
            return deed(self._connected(line))

    def overview(self, number: int) -> Overview:
        """Return what was read within the last two seconds, or read it."""
        line = self._lines[number]
        with line.lock:
            if line.overview is None or time.monotonic() - line.read_at > FRESH_SECONDS:
                line.overview = self._asked(line, lambda connection: _read(line, connection))
                line.read_at = time.monotonic()
            return line.overview

    def close(self) -> None:
        """Leave the databases, and forget what was read."""
        for line in self._lines.values():
            with line.lock:
                _hang_up(line)

    def _asked(self, line: _Line, question: Callable[[psycopg.Connection[Any]], Found]) -> Found:
        was_open = line.connection is not None
        try:
            return question(self._connected(line))
        except psycopg.OperationalError:
            is_lost = line.connection is None or line.connection.closed
            if is_lost:
                _hang_up(line)
            if not (was_open and is_lost):
                raise
        # The session was lost since the last question: the database may be back.
        return question(self._connected(line))

    def _connected(self, line: _Line) -> psycopg.Connection[Any]:
        if line.connection is None or line.connection.closed:
            line.connection = psycopg.connect(
                line.target.conninfo,
                user=self.role,
                password=self._password,
                require_auth=_ASKED,
                options=_OPTIONS,
                autocommit=True,
                connect_timeout=5,
                application_name="pybroker console",
            )
        return line.connection


def _hang_up(line: _Line) -> None:
    if line.connection is not None:
        line.connection.close()
    line.connection = line.reading = line.overview = None


def _read(line: _Line, connection: psycopg.Connection[Any]) -> Overview:
    now = read(connection)
    before = line.reading
    line.reading = now
    return Overview(
        status_of(before or now, now),
        tuple(findings_of(connection)),
        before is not None,
        line.history.add(now),
    )
