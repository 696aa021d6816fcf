"""Sessions: what runs a broker's calls on a connection or a pool, and its transaction blocks."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from pybroker.client import statements
from pybroker.client.concurrency import AsyncLock, sleep_async
from pybroker.client.sqlalchemy_source import begun_async, is_sqlalchemy_async
from pybroker.client.statements import Pause, Validations
from pybroker.errors import QueueNotFound, broker_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from pybroker.client.sqlalchemy_source import AsyncSQLAlchemySource
    from pybroker.client.statements import Query, Result, Row, Steps

# Those of every broker, the innermost last. A context variable, since a broker on a pool serves many tasks,
# each with a transaction of its own.
_open_blocks: ContextVar[tuple[AsyncTransaction, ...]] = ContextVar("pybroker_open_blocks", default=())


# All that there are, for a fork to look through.
_sessions: WeakSet[AsyncSession] = WeakSet()


def _note_fork() -> None:
    for session in _sessions:
        session.note_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def _close_block(block: AsyncTransaction) -> None:
    # Not by a token: a task's fixture may be left in another context than it was entered in.
    _open_blocks.set(tuple(other for other in _open_blocks.get() if other is not block))


def _is_idle(connection: psycopg.AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE


def _is_rollback(error: BaseException | None) -> bool:
    return isinstance(error, psycopg.Rollback) and error.transaction is None


async def opened_async(url: str, **options: Any) -> psycopg.AsyncConnection[Any]:
    """Return a new connection, with autocommit, for a broker or a reader of its own.

    Behind a pooler that gives a session for a transaction only, it prepares nothing: what it prepared would
    be in another client's session a moment later. An option ``prepare_threshold`` is taken as it is.
    """
    # The server's may be SQL_ASCII, of which the driver makes bytes.
    options.setdefault("client_encoding", "UTF8")
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, **options)
    if "prepare_threshold" not in options:
        query = statements.is_own_session(connection.info.backend_pid)
        async with psycopg.AsyncCursor(connection) as cursor:
            await cursor.execute(query.sql, query.parameters, prepare=False)
            if not cursor.rowcount:
                connection.prepare_threshold = None
    return connection


class AsyncTransaction:
    """The block of ``async with broker.transaction():``.

    On a broker made from a URL or a pool nothing is begun until a call does something, so that waiting for
    the first message holds nothing. On a connection of the program's own the transaction begins with the
    block, since the program's statements on that connection belong to it too.

    Tasks that are started in the block share it; threads don't.
    """

    def __init__(self, session: AsyncSession, outer: AsyncTransaction | None) -> None:
        self._session = session
        self._outer = outer
        self._is_over = False
        self._is_touched = False
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._held = AsyncExitStack()
        # Else one task's empty poll could roll back what another has just done.
        self.lock: AsyncLock = outer.lock if outer else AsyncLock()

    async def connection(self) -> psycopg.AsyncConnection[Any]:
        """Begin the transaction and return its connection, for the program's own statements in it.

        Raises:
            RuntimeError: the block is over.
        """
        async with self.lock:
            self.touch()
            return await self.begun()

    async def __aenter__(self) -> Self:
        if self._session.begins_at_once:
            await self.connection()
        _open_blocks.set((*_open_blocks.get(), self))
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._session.is_of_another_process:
            # It stays in the list: what it holds would roll back when it is collected.
            return _is_rollback(error)
        _close_block(self)
        async with self.lock:
            self._is_over = True
            if self._connection is None:
                return _is_rollback(error)
            with broker_errors():
                return await self._held.__aexit__(error_type, error, traceback) is True

    def is_of(self, session: AsyncSession) -> bool:
        """Return whether this is an open block of that session."""
        return self._session is session and not self._is_over

    @property
    def is_touched(self) -> bool:
        """Whether something was done in this transaction, or in one around it, that a rollback would lose."""
        return self._is_touched or (self._outer is not None and self._outer.is_touched)

    def touch(self) -> None:
        """Note that what follows is not to be given up for a poll."""
        self._is_touched = True
        if self._outer is not None:
            self._outer.touch()

    async def begun(self) -> psycopg.AsyncConnection[Any]:
        """Begin what has not begun, here and around, and return the connection."""
        if self._is_over:
            raise RuntimeError("This transaction is over: its with block has ended.")
        self._session.require_own_process()
        if self._connection is None:
            async with AsyncExitStack() as held:
                connection = (
                    await self._outer.begun()
                    if self._outer
                    else await held.enter_async_context(self._session.lend())
                )
                await held.enter_async_context(connection.transaction())
                self._held = held.pop_all()
                self._connection = connection
        return self._connection

    async def give_up(self) -> None:
        """Roll back, here and around; the next call begins anew."""
        if self._connection is not None:
            self._connection = None
            await self._held.__aexit__(psycopg.Rollback, psycopg.Rollback(), None)
        if self._outer is not None:
            await self._outer.give_up()


class AsyncSession:
    """Runs steps on a connection or a pool, in the transaction block around the call if there is one."""

    def __init__(
        self,
        source: psycopg.AsyncConnection[Any] | AsyncConnectionPool[Any] | AsyncSQLAlchemySource,
        owns_source: bool,
    ) -> None:
        self._source = source
        self._owns_source = owns_source
        self._is_own_session: bool | None = None
        self.is_of_another_process: bool = False
        self.validations: Validations = Validations()
        _sessions.add(self)

    @property
    def begins_at_once(self) -> bool:
        """Whether a transaction begins with its block, as on a connection of the program's own."""
        source = self._source
        return not self._owns_source and (
            isinstance(source, psycopg.AsyncConnection) or is_sqlalchemy_async(source)
        )

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Give the connection, or one of the pool's for as long as it is needed."""
        if isinstance(self._source, psycopg.AsyncConnection):
            statements.require_texts(self._source.info)
            yield self._source
        elif isinstance(self._source, AsyncConnectionPool):
            async with self._source.connection() as connection:
                statements.require_texts(connection.info)
                yield connection
        else:
            connection = await begun_async(self._source)
            statements.require_texts(connection.info)
            yield connection

    def transaction(self) -> AsyncTransaction:
        """Return a transaction block inside the one that is open here, if there is one."""
        return AsyncTransaction(self, self._block())

    def is_in_transaction(self) -> bool:
        """Return whether a rollback now would lose something."""
        block = self._block()
        if block is not None:
            return block.is_touched
        source = self._source
        if isinstance(source, psycopg.AsyncConnection):
            return not _is_idle(source)
        # SQLAlchemy's own begin is with the first statement.
        return is_sqlalchemy_async(source)

    async def close(self) -> None:
        """Close the connection, if it is not the program's own, nor another process's."""
        if self._owns_source and not self.is_of_another_process:
            await self._source.close()

    async def run(self, steps: Steps[Result]) -> Result:
        """Run the steps of a call to their end, and return its result."""
        self.require_own_process()
        has_waited = False
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    rows, has_waited = await self._wait(step), True
                else:
                    rows = await self._fetch(step)
                step = steps.send(rows)
        except QueueNotFound as error:
            if has_waited:
                error.add_note("The queue was dropped while this session waited.")
            raise
        except StopIteration as end:
            result: Result = end.value
            return result

    def note_fork(self) -> None:
        """Note, in a process just forked, that the connection is the other's; an unopened pool has none."""
        if not getattr(self._source, "closed", False):
            self.is_of_another_process = True

    def require_own_process(self) -> None:
        """Refuse a process that was forked from the broker's: both would write into one connection."""
        if self.is_of_another_process:
            raise RuntimeError(
                "This broker connected before its process forked, and its connection is the other process's:"
                " connect in each process, as in gunicorn's post_fork."
            )

    async def _wait(self, pause: Pause) -> list[Row]:
        with broker_errors():
            connection = await self._sleeper(pause)
            asleep = await self._rows(connection, statements.sleep_on(pause.queue)) if connection else []
            if connection and asleep:
                try:
                    async for _ in connection.notifies(timeout=pause.longest_sleep, stop_after=1):
                        pass
                finally:
                    await self._rows(connection, statements.wake_up(pause.queue))
            else:
                await sleep_async(pause.seconds)
            return asleep

    async def _sleeper(self, pause: Pause) -> psycopg.AsyncConnection[Any] | None:
        """Return the connection if it can be notified, and is to be."""
        source = self._source
        # A connection of the program's own has listeners, and a transaction, that only the program knows of.
        if not isinstance(source, psycopg.AsyncConnection) or not self._owns_source:
            return None
        if pause.longest_sleep == 0 or not _is_idle(source):
            return None
        if self._is_own_session is None:
            query = statements.is_own_session(source.info.backend_pid)
            self._is_own_session = bool(await self._rows(source, query))
        return source if self._is_own_session else None

    def _block(self) -> AsyncTransaction | None:
        for block in reversed(_open_blocks.get()):
            if block.is_of(self):
                return block
        return None

    async def _fetch(self, query: Query) -> list[Row]:
        block = self._block()
        with broker_errors():
            if block is None:
                return await self._fetch_alone(query)
            async with block.lock:
                if not query.is_poll:
                    block.touch()
                rows = await self._rows(await block.begun(), query)
                if rows:
                    block.touch()
                elif not block.is_touched:
                    await block.give_up()
                return rows

    async def _fetch_alone(self, query: Query) -> list[Row]:
        async with self.lend() as connection:
            was_idle = _is_idle(connection)
            rows = await self._rows(connection, query)
            if query.is_poll and not rows and was_idle:
                await connection.rollback()
            return rows

    @staticmethod
    async def _rows(connection: psycopg.AsyncConnection[Any], query: Query) -> list[Row]:
        # Not connection.cursor(): the program may have given its connection another kind of cursor or row.
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(query.sql, query.parameters, binary=True)
            return await cursor.fetchall()
