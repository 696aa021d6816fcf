"""The gate before the databases: each statement of whoever waits for its moment, and then has the server alone.

psycopg's two coroutines that wait for a server are replaced; all else of it and of its pool is what production
uses. A statement that another session's lock stops is parked, and goes on when that lock is gone.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection, waiting
from psycopg.errors import _WaitTimeout
from psycopg.pq import ConnStatus, TransactionStatus

from tests.simulation.loop import PROCESS, Process, SimulatedLoop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator

    from tests.simulation.spares import Spares
    from tests.simulation.trace import Trace

# Real milliseconds without an answer, after which it is asked whether a lock is what it waits for.
_DOUBT_MS = 20
# No statement of a simulation takes as long, in real seconds.
_LONGEST = 60.0
_CALLED = re.compile(r"broker(?:_private)?\.(\w+)")
_ENDS = {"commit_gen": "COMMIT", "rollback_gen": "ROLLBACK"}
_AT_REST = (TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR)
# After these alone nobody can have been notified. Nor after what calls no function of the broker.
_SILENT = (
    "COMMIT", "ROLLBACK", "take", "take_plain", "describe_dialogs", "transmission_work", "due", "worker_greeting",
    "rights_findings", "note_periodic_task", "note_worker", "note_connections",
)  # fmt: skip
_WITHOUT_SERVER = ("_set_autocommit_gen", "_set_isolation_level_gen")


@dataclass(eq=False)
class Session:
    """A session with the server.

    Attributes:
        number: the how manieth it is.
        parked: what is set when the lock that it waits for is gone.
        is_statement_under_way: whether the server is at work for it.
        is_terminated: whether the server has ended it.
        is_lent: whether it is a spare one.
        may_notify: whether its transaction may notify somebody.
        has_left: whether whoever had it has closed it, and it was laid aside for the next seed.
        kept: notifications that have come.
    """

    number: int
    pid: int
    database: str
    pgconn: Any
    process: Process | None
    parked: asyncio.Future[None] | None = None
    is_statement_under_way: bool = False
    is_terminated: bool = False
    is_lent: bool = False
    may_notify: bool = False
    has_left: bool = False
    kept: list[Any] = field(default_factory=list)

    @property
    def fd(self) -> int:
        return int(self.pgconn.socket)

    @property
    def is_ended(self) -> bool:
        return self.has_left or bool(self.pgconn.status != ConnStatus.OK)

    @property
    def is_at_rest(self) -> bool:
        """Whether it is in no transaction, or no more."""
        return self.is_ended or self.pgconn.transaction_status == TransactionStatus.IDLE


@dataclass(frozen=True)
class Statement:
    """What a session is about to do, or has done: the function it calls, or COMMIT, ROLLBACK, CONNECT."""

    session: Session | None
    label: str
    database: str


class Gate:
    """All sessions, and what they wait for."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: random.Random,
        trace: Trace,
        monitor: psycopg.Connection[Any],
        spares: Spares,
    ) -> None:
        """Prepare.

        Args:
            loop: the seed's.
            random: decides how long each takes.
            trace: is told of each statement.
            monitor: a session for the gate's own questions.
            spares: sessions that are lent to who connects.
        """
        self._loop = loop
        self._random = random
        self._trace = trace
        self._monitor = monitor
        self._spares = spares
        self._sessions: dict[int, Session] = {}
        self._ending: list[Session] = []
        self._numbers = count(1)
        self._parked: list[Session] = []
        self.away: set[str] = set()
        self.slowness = 1.0
        self.statements = 0
        # What else looks at each statement: faults before and after it, and what must hold. With the rows that
        # it returned, or its error.
        self.before: Callable[[Statement], None] = lambda _: None
        self.after: Callable[[Statement, str], None] = lambda _, __: None
        waiting.wait_async = self._wait  # type: ignore[assignment]
        waiting.wait_conn_async = self._wait_conn  # type: ignore[assignment]
        AsyncConnection.close = self._closing(AsyncConnection.close)  # type: ignore[assignment, method-assign]

    def session_of(self, fileno: int) -> Session:
        """Return the session that this socket is of."""
        return self._sessions[fileno]

    def sessions_of(self, process: Process) -> list[Session]:
        """Return the sessions of a process."""
        return [each for each in self._sessions.values() if each.process is process and not each.is_ended]

    def sessions_in(self, database: str) -> list[Session]:
        """Return the sessions in a database."""
        return [each for each in self._sessions.values() if each.database == database and not each.is_ended]

    def died(self, process: Process, lingering: Session | None = None) -> None:
        """Have the server notice that a process is gone, but in a session that is lingering."""
        for session in self.sessions_of(process):
            if session is lingering:
                continue
            # Else whoever gets its number next loses an answer by what `_notify` asks.
            self._loop.remove_reader(session.fd)
            self._leave(session)
        self.settle()

    def close(self) -> None:
        """Close all sessions, or lay them aside for the next seed."""
        for session in self._sessions.values():
            if not session.is_ended:
                self._leave(session)

    def commit_late(self, session: Session) -> None:
        """Have the server execute the COMMIT of a process that is gone, if it has not ended the session."""
        if session.is_ended or session.is_terminated:
            return
        statement = Statement(session, "COMMIT", session.database)
        self.before(statement)
        self.statements += 1
        session.pgconn.exec_(b"commit")
        self._trace.note("late", session.number, session.database, "COMMIT")
        self.settle(session)
        self.after(statement, "")
        self._leave(session)
        self.settle()

    def terminate(self, session: Session) -> None:
        """End a session as an administrator does."""
        session.is_terminated = True
        self._monitor.execute("select pg_terminate_backend(%s)", (session.pid,))
        began = time.monotonic()
        while _is_alive(session.pid):
            self._be_patient(began, "a terminated session")
        if self._loop.reads(session.fd):
            self._loop.readable(session.fd)
        self.settle()

    def settle(self, done: Session | None = None) -> None:
        """Wait until the server has done all that it can by itself, after this session's statement."""
        for fd, session in tuple(self._sessions.items()):
            if session.is_ended:
                del self._sessions[fd]
                self._ending.append(session)
        self._ending = [session for session in self._ending if not self._is_gone(session)]
        for session in tuple(self._parked):
            if session.parked is not None and self._is_free(session):
                self._parked.remove(session)
                self._trace.note("unparked", session.number)
                if not session.parked.done():
                    session.parked.set_result(None)
                session.parked = None
        if done is not None and done.may_notify and done.is_at_rest:
            done.may_notify = False
            self._notify(done.database)

    async def _wait(
        self,
        gen: Generator[Any, Any, Any],
        fileno: int,
        interval: float = 0.0,
        timeout: float | None = None,  # noqa: ASYNC109 - as psycopg's
    ) -> Any:
        del interval
        session = self._sessions.get(fileno)
        kind = getattr(gen, "__name__", "")
        if session is None or session.is_ended or kind in _WITHOUT_SERVER:
            # What asks for a session that is over fails at once, as it would.
            return _at_once(gen)
        if kind == "notifies":
            return await self._notified(gen, session, is_to_end=timeout is not None)
        if kind.strip("_") in _ENDS and session.pgconn.transaction_status == TransactionStatus.IDLE:
            return _at_once(gen)
        if session.is_statement_under_way:
            # It was cancelled, and its end is waited for.
            return await self._run(gen, session)
        label, cursor = _label_of(gen, kind)
        statement = Statement(session, label, session.database)
        await asyncio.sleep(self._pause())
        if session.is_ended:
            return _at_once(gen)
        self.before(statement)
        await self._unless_dead(session.process)
        self.statements += 1
        if label not in _SILENT and " " not in label:
            session.may_notify = True
        outcome = "failed"
        try:
            result = await self._run(gen, session)
            outcome = "" if cursor is None else str(cursor.rowcount)
        except psycopg.Error as error:
            outcome = error.sqlstate or type(error).__name__
            raise
        finally:
            self._trace.note(
                session.process.name if session.process else "-",
                session.number,
                session.database,
                label,
                outcome,
            )
            self.settle(session)
            self.after(statement, outcome)
        await self._unless_dead(session.process)
        await asyncio.sleep(self._pause())
        return result

    async def _wait_conn(
        self,
        gen: Generator[Any, Any, Any],
        interval: float = 0.0,
        timeout: float | None = None,  # noqa: ASYNC109 - as psycopg's
    ) -> Any:
        del interval, timeout
        process = PROCESS.get()
        is_cancel = getattr(gen, "__name__", "") == "_cancel_gen"
        if not is_cancel:
            await asyncio.sleep(self._pause())
            if process is not None and process.host in self.away:
                raise psycopg.OperationalError("the server is away")
        connection = None if is_cancel else self._lent(gen)
        is_lent = connection is not None
        try:
            if not is_lent:
                fileno, state = next(gen)
            while not is_lent:
                fileno, state = gen.send(_ready(fileno, state, _LONGEST))
        except StopIteration as stop:
            connection = stop.value
        if is_cancel:
            return connection
        assert connection is not None
        pgconn = connection.pgconn
        number = next(self._numbers)
        session = Session(number, pgconn.backend_pid, pgconn.db.decode(), pgconn, process, is_lent=is_lent)
        self._sessions[session.fd] = session
        # What random() says is the seed's too.
        pgconn.exec_(b"select setseed(%f)" % self._random.uniform(-1, 1))
        self._trace.note(process.name if process else "-", number, session.database, "CONNECT")
        self.before(Statement(session, "CONNECT", session.database))
        await self._unless_dead(process)
        return connection

    def _lent(self, gen: Generator[Any, Any, Any]) -> AsyncConnection[Any] | None:
        """Return a connection over a spare session, if there is one."""
        wanted = gen.gi_frame.f_locals  # type: ignore[attr-defined]
        pgconn = self._spares.lend(wanted["conninfo"])
        return None if pgconn is None else wanted["cls"](pgconn)

    def _leave(self, session: Session) -> None:
        """Close a session, or lay it aside."""
        is_idle = session.pgconn.transaction_status in _AT_REST
        if session.is_lent and is_idle and not session.is_terminated and session.parked is None:
            session.has_left = self._spares.take_back(session.pgconn)
        if not session.has_left:
            session.pgconn.finish()

    def _closing(self, close: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what takes the place of psycopg's own `close`."""

        async def close_or_leave(connection: Any) -> None:
            session = None if connection.closed else self._sessions.get(connection.fileno())
            if session is None or not session.is_lent:
                await close(connection)
                return
            connection._closed = True
            self._leave(session)
            # Whoever uses it all the same has to fail.
            connection.pgconn = self._spares.closed

        return close_or_leave

    async def _notified(
        self, gen: Generator[Any, Any, Any], session: Session, *, is_to_end: bool
    ) -> list[Any]:
        # Its answer comes after all that other sessions have notified of.
        session.pgconn.exec_(b"")
        found = [*session.kept, *_at_once(gen)]
        session.kept.clear()
        if not found and is_to_end:
            await asyncio.sleep(0.0001)
            raise _WaitTimeout
        self._trace.note("notified", session.number, len(found))
        return found

    async def _run(self, gen: Generator[Any, Any, Any], session: Session) -> Any:
        """Let the server work on it, and on nothing else, until it is done."""
        session.is_statement_under_way = True
        began = time.monotonic()
        try:
            state = next(gen)
            while True:
                ready = _ready(session.fd, state, _DOUBT_MS / 1000)
                if not ready:
                    if self._is_blocked(session.pid):
                        await self._park(session)
                        began = time.monotonic()
                    elif time.monotonic() - began > _LONGEST:
                        raise AssertionError(f"session {session.number} has no answer: {self._activity()}")
                    continue
                state = gen.send(ready)
        except StopIteration as stop:
            session.is_statement_under_way = False
            return stop.value
        except psycopg.Error:
            session.is_statement_under_way = False
            raise

    async def _park(self, session: Session) -> None:
        self._trace.note("parked", session.number)
        session.parked = self._loop.create_future()
        self._parked.append(session)
        try:
            await session.parked
        except asyncio.CancelledError:
            if session in self._parked:
                self._parked.remove(session)
            session.parked = None
            raise

    def _activity(self) -> list[Any]:
        """Return what the server says of all sessions."""
        return self._monitor.execute(
            "select pid, datname, application_name, state, wait_event_type, wait_event, left(query, 100), pg_blocking_pids(pid)"
            " from pg_stat_activity where datname is not null order by pid"
        ).fetchall()

    def _is_blocked(self, pid: int) -> bool:
        """Whether it waits for a lock, and no deadlock is about to be found."""
        began = time.monotonic()
        while True:
            row = self._monitor.execute(
                "with recursive waits as ("
                " select %(pid)s::integer as pid, unnest(pg_blocking_pids(%(pid)s::integer)) as holder"
                " union select w.holder, unnest(pg_blocking_pids(w.holder)) from waits w)"
                " select count(*) > 0, count(*) filter (where holder = %(pid)s::integer) > 0 from waits",
                {"pid": pid},
            ).fetchone()
            assert row is not None
            is_blocked, is_deadlock = row
            if not is_deadlock:
                return bool(is_blocked)
            self._be_patient(began, "a deadlock")

    def _is_free(self, session: Session) -> bool:
        """Wait until a parked statement has an answer, or is known to wait on."""
        if session.is_ended:
            return True
        began = time.monotonic()
        while not _ready(session.fd, 1, 0.001):
            if self._is_blocked(session.pid):
                return False
            self._be_patient(began, "a statement that was let go on")
        return True

    def _is_gone(self, session: Session) -> bool:
        if session.has_left:
            return True
        began = time.monotonic()
        while _is_alive(session.pid):
            if self._is_blocked(session.pid):
                return False
            self._be_patient(began, "a session that was left")
        return True

    def _notify(self, database: str) -> None:
        """Tell those who sleep on notifications what has come for them, now that a transaction has ended."""
        for fd, session in self._sessions.items():
            if session.database == database and self._loop.reads(fd) and not session.is_terminated:
                # The server answers when it has told all.
                session.pgconn.exec_(b"")
                # What is taken out here is given to who asks.
                if (notification := session.pgconn.notifies()) is not None:
                    self._loop.readable(fd)
                    session.kept.append(notification)

    async def _unless_dead(self, process: Process | None) -> None:
        if process is not None and process.is_dead:
            await self._loop.create_future()

    def _pause(self) -> float:
        return self.slowness * self._random.choice((0.0002, 0.0005, 0.001, 0.001, 0.004))

    def _be_patient(self, began: float, what: str) -> None:
        if time.monotonic() - began > _LONGEST:
            raise AssertionError(f"the server does not end {what}")
        time.sleep(0.0002)


def _label_of(gen: Generator[Any, Any, Any], kind: str) -> tuple[str, Any]:
    """Return what a statement is called, and its cursor."""
    if (end := _ENDS.get(kind.strip("_"))) is not None:
        return end, None
    frame = getattr(gen, "gi_frame", None)
    if frame is None or "query" not in frame.f_locals:
        return kind, None
    query = frame.f_locals["query"]
    text = query.decode() if isinstance(query, bytes) else str(query)
    found = _CALLED.findall(text)
    return (found[-1] if found else " ".join(text.split())[:40]), frame.f_locals.get("self")


def _at_once(gen: Generator[Any, Any, Any]) -> Any:
    """Run what needs no server, or nothing that is not there."""
    try:
        next(gen)
        while True:
            gen.send(1)
    except StopIteration as stop:
        return stop.value


def _ready(fd: int, state: int, seconds: float) -> int:
    """Return which of the two, readable or writable, it is; wait so long at most."""
    poller = select.poll()
    poller.register(fd, (select.POLLIN if state & 1 else 0) | (select.POLLOUT if state & 2 else 0))
    for _, events in poller.poll(seconds * 1000):
        found = (1 if events & ~select.POLLOUT else 0) | (2 if events & select.POLLOUT else 0)
        return found & state or state
    return 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
