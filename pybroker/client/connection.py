"""Brokers: a connection or a pool through which a program talks to the broker of one database."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from pybroker.client import statements
from pybroker.client.conversation import AsyncConversation, AsyncMessage, Conversation, Message
from pybroker.client.statements import Pause, Query, Validations
from pybroker.connection_string import checked
from pybroker.errors import broker_errors
from pybroker.message import NO_BODY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from types import TracebackType

    from pybroker.client.statements import Duration, Result, Row, Steps
    from pybroker.message import Body

# Those of every broker, the innermost last. A context variable, since a broker on a pool serves many threads
# and tasks, each with a transaction of its own.
_open_blocks: ContextVar[tuple[Transaction | AsyncTransaction, ...]] = ContextVar(
    "pybroker_open_blocks", default=()
)


def _close_block(block: Transaction | AsyncTransaction) -> None:
    # Not by a token: an async fixture may be left in another context than it was entered in.
    _open_blocks.set(tuple(other for other in _open_blocks.get() if other is not block))


def _is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE


def _is_rollback(error: BaseException | None) -> bool:
    return isinstance(error, psycopg.Rollback) and error.transaction is None


class Transaction:
    """The block of ``with broker.transaction():``.

    On a broker made from a URL or a pool nothing is begun until a call does something, so that waiting for
    the first message holds nothing. On a connection of the program's own the transaction begins with the
    block, since the program's statements on that connection belong to it too.
    """

    def __init__(self, session: _Session, outer: Transaction | None) -> None:
        self._session = session
        self._outer = outer
        self._is_over = False
        self._is_touched = False
        self._connection: psycopg.Connection[Any] | None = None
        self._held = ExitStack()

    def connection(self) -> psycopg.Connection[Any]:
        """Begin the transaction and return its connection, for the program's own statements in it.

        Raises:
            RuntimeError: the block is over.
        """
        self.touch()
        return self.begun()

    def __enter__(self) -> Self:
        if self._session.begins_at_once:
            self.connection()
        _open_blocks.set((*_open_blocks.get(), self))
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        _close_block(self)
        self._is_over = True
        if self._connection is None:
            return _is_rollback(error)
        with broker_errors():
            return self._held.__exit__(error_type, error, traceback) is True

    def is_of(self, session: _Session) -> bool:
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

    def begun(self) -> psycopg.Connection[Any]:
        """Begin what has not begun, here and around, and return the connection."""
        if self._is_over:
            raise RuntimeError("This transaction is over: its with block has ended.")
        if self._connection is None:
            with ExitStack() as held:
                connection = self._outer.begun() if self._outer else held.enter_context(self._session.lend())
                held.enter_context(connection.transaction())
                self._held = held.pop_all()
                self._connection = connection
        return self._connection

    def give_up(self) -> None:
        """Roll back, here and around; the next call begins anew."""
        if self._connection is not None:
            self._connection = None
            self._held.__exit__(psycopg.Rollback, psycopg.Rollback(), None)
        if self._outer is not None:
            self._outer.give_up()


class _Session:
    """Runs steps on a connection or a pool, in the transaction block around the call if there is one."""

    def __init__(self, source: psycopg.Connection[Any] | ConnectionPool[Any], owns_source: bool) -> None:
        self._source = source
        self._owns_source = owns_source
        self._is_own_session: bool | None = None
        self.validations = Validations()

    @property
    def begins_at_once(self) -> bool:
        return isinstance(self._source, psycopg.Connection) and not self._owns_source

    @contextmanager
    def lend(self) -> Iterator[psycopg.Connection[Any]]:
        if isinstance(self._source, psycopg.Connection):
            yield self._source
        else:
            with self._source.connection() as connection:
                yield connection

    def transaction(self) -> Transaction:
        return Transaction(self, self._block())

    def is_in_transaction(self) -> bool:
        block = self._block()
        if block is not None:
            return block.is_touched
        return isinstance(self._source, psycopg.Connection) and not _is_idle(self._source)

    def close(self) -> None:
        if self._owns_source:
            self._source.close()

    def run(self, steps: Steps[Result]) -> Result:
        try:
            step = next(steps)
            while True:
                rows = self._wait(step) if isinstance(step, Pause) else self._fetch(step)
                step = steps.send(rows)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _wait(self, pause: Pause) -> list[Row]:
        with broker_errors():
            connection = self._sleeper(pause)
            asleep = self._rows(connection, statements.sleep_on(pause.queue)) if connection else []
            if connection and asleep:
                try:
                    for _ in connection.notifies(timeout=pause.longest_sleep, stop_after=1):
                        pass
                finally:
                    self._rows(connection, statements.wake_up(pause.queue))
            else:
                time.sleep(pause.seconds)
            return asleep

    def _sleeper(self, pause: Pause) -> psycopg.Connection[Any] | None:
        """Return the connection if it can be notified, and is to be."""
        source = self._source
        # A connection of the program's own has listeners, and a transaction, that only the program knows of.
        if not isinstance(source, psycopg.Connection) or not self._owns_source:
            return None
        if pause.longest_sleep == 0 or not _is_idle(source):
            return None
        if self._is_own_session is None:
            query = statements.is_own_session(source.info.backend_pid)
            self._is_own_session = bool(self._rows(source, query))
        return source if self._is_own_session else None

    def _block(self) -> Transaction | None:
        for block in reversed(_open_blocks.get()):
            if isinstance(block, Transaction) and block.is_of(self):
                return block
        return None

    def _fetch(self, query: Query) -> list[Row]:
        block = self._block()
        with broker_errors():
            if block is None:
                return self._fetch_alone(query)
            if not query.is_poll:
                block.touch()
            rows = self._rows(block.begun(), query)
            if rows:
                block.touch()
            elif not block.is_touched:
                block.give_up()
            return rows

    def _fetch_alone(self, query: Query) -> list[Row]:
        with self.lend() as connection:
            was_idle = _is_idle(connection)
            rows = self._rows(connection, query)
            if query.is_poll and not rows and was_idle:
                connection.rollback()
            return rows

    @staticmethod
    def _rows(connection: psycopg.Connection[Any], query: Query) -> list[Row]:
        # Not connection.cursor(): the program may have given its connection another kind of cursor or row.
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            return cursor.execute(query.sql, query.parameters, binary=True).fetchall()


class Broker:
    """The broker of one database, as :func:`connect` returns it.

    Outside ``broker.transaction()`` each call commits on its own: a message received so is gone, even if its
    processing fails. On a connection of the program's own, psycopg's rules hold instead: in a transaction
    that is open the call is part of it, and without autocommit a call opens one, which the program commits.

    A broker on a pool may be used by many threads. One on a connection serves one at a time, as the
    connection does.
    """

    def __init__(
        self, source: psycopg.Connection[Any] | ConnectionPool[Any], *, owns_source: bool = False
    ) -> None:
        self._session = _Session(source, owns_source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if the broker made it from a URL; one's own connection or pool stays open."""
        self._session.close()

    def transaction(self) -> Transaction:
        """Return a transaction: ``with`` it commits at its end, and rolls back on an exception.

        Inside another one it is a savepoint. A group that is locked after a savepoint is free again after a
        rollback to it: to keep the group, lock it before, with :meth:`get_conversation_group`. ``raise
        psycopg.Rollback`` leaves the block without an error.

        ``with broker.transaction() as transaction:`` gives ``transaction.connection()``, for statements of
        one's own in it.
        """
        return self._session.transaction()

    def begin_dialog(
        self,
        from_service: str,
        to_service: str,
        contract: str = "DEFAULT",
        *,
        broker_instance: str | None = None,
        related_conversation: Conversation | UUID | None = None,
        related_conversation_group: UUID | None = None,
        lifetime: Duration | None = None,
        encryption: bool = True,
    ) -> Conversation:
        """Begin a dialog and return this side of it. Nothing is sent yet.

        Args:
            from_service: a service of this database; its queue gets replies and errors.
            to_service: the service to talk to, byte for byte; it need not exist yet.
            contract: what either side may send.
            broker_instance: the guid of the target's broker, where several host the service; or ``CURRENT
                DATABASE``.
            related_conversation: a conversation whose group the dialog joins.
            related_conversation_group: a group that it joins, made if there is none.
            lifetime: seconds, or a timedelta, after which both sides get an error; None for 2^31-1 seconds.
            encryption: whether messages must be encrypted when they leave the instance.

        Raises:
            ServiceNotFound, ContractNotFound, ConversationNotFound: 8423, 8425; 8426 for the related
                conversation.
            ConversationGroupMismatch: the group is of another service (9610).
            PermissionDenied: no RECEIVE on the service's queue, or no REFERENCES on the contract (229).
            BrokerError: 8411 for the lifetime, 8413 for the broker instance, 8421 without a target service.
        """
        related = related_conversation
        steps = statements.begin_dialog(
            from_service,
            to_service,
            contract,
            broker_instance=broker_instance,
            related_conversation=related.handle if isinstance(related, Conversation) else related,
            related_conversation_group=related_conversation_group,
            lifetime=lifetime,
            encryption=encryption,
        )
        return Conversation(self._session.run(steps), self._session)

    def conversation(self, handle: UUID | str) -> Conversation:
        """Return the conversation with a handle that the program stored; the database is not asked."""
        return Conversation(handle if isinstance(handle, UUID) else UUID(handle), self._session)

    def send_all(
        self, conversations: Iterable[Conversation | UUID], message_type: str, body: Body = NO_BODY
    ) -> None:
        """Send one message on many conversations, on all or on none; the database stores the body once.

        Args:
            conversations: conversations or their handles, each once.
            message_type: a type that all their contracts let this side send.
            body: as in :meth:`Conversation.send`.

        Raises:
            ConversationNotFound: a handle is unknown (8435).
            BrokerError: there is no handle (8441), or one is there twice (8451); and as
                :meth:`Conversation.send`. The message says which place in the list is meant.
        """
        handles = [one.handle if isinstance(one, Conversation) else one for one in conversations]
        self._session.run(statements.send_all(self._session.validations, handles, message_type, body))

    def receive(
        self,
        queue: str,
        *,
        top: int | None = None,
        conversation_handle: UUID | None = None,
        conversation_group_id: UUID | None = None,
        timeout: Duration | None = 0,
    ) -> list[Message]:
        """Take messages of one conversation group from a queue, and lock the group for the transaction.

        Conversations of higher priority come first; within one, messages are in their order, an Error before
        them.

        A wait holds no transaction and no snapshot outside a transaction block, and in a block of a broker
        made from a URL or a pool in which nothing was done yet. There an empty look is rolled back, and the
        transaction begins with the look that finds messages. Between two looks a broker made from a URL
        sleeps until it is notified of a message, at most a second; any other pauses for 3 to 100
        milliseconds. In a transaction that has done something, or that is open on a connection of the
        program's own, the database waits within that transaction, which holds back vacuum for as long.

        Args:
            queue: its name.
            top: at most so many messages; None for all of the group.
            conversation_handle: only messages of this conversation; waits for whoever holds its group.
            conversation_group_id: only messages of this group; waits for whoever holds it.
            timeout: seconds, or a timedelta, to wait for a message; None for ever.

        Returns:
            The messages, none if nothing came in time.

        Raises:
            QueueNotFound, QueueDisabledError, PermissionDenied: 208, 9617, 229; the first two also while it
                waits.
            ConversationNotFound, ConversationGroupNotFound: 8426, 8436.
            ArgumentError: top or timeout is negative, or handle and group are both given (153); or the
                database is to wait in a transaction that is not READ COMMITTED.
        """
        steps = statements.receive(
            queue,
            top,
            conversation_handle=conversation_handle,
            conversation_group_id=conversation_group_id,
            timeout=timeout,
            is_in_transaction=self._session.is_in_transaction(),
        )
        rows = self._session.run(steps)
        return [Message(*(*row, self.conversation(row[statements.HANDLE]))) for row in rows]

    def receive_groups(
        self, queue: str, max_groups: int, *, top: int | None = None, timeout: Duration | None = 0
    ) -> list[Message]:
        """Take messages of several conversation groups in one call, and lock each for the transaction.

        For a program whose groups have few messages each: one commit then serves many. Messages are ordered
        by group, ``conversation_group_id`` says which; within one they are as :meth:`receive` gives them. It
        waits as that does if there is no message at all, and never for further groups.

        Args:
            queue: its name.
            max_groups: at most so many groups, 1 or more.
            top: at most so many messages of each group; None for all.
            timeout: seconds, or a timedelta, to wait for a message; None for ever.

        Returns:
            The messages, none if nothing came in time.

        Raises:
            QueueNotFound, QueueDisabledError, PermissionDenied: 208, 9617, 229.
            ArgumentError: max_groups is below 1, or top or timeout is negative (153).
        """
        steps = statements.receive_groups(
            queue, max_groups, top, timeout=timeout, is_in_transaction=self._session.is_in_transaction()
        )
        rows = self._session.run(steps)
        return [Message(*(*row, self.conversation(row[statements.HANDLE]))) for row in rows]

    def get_conversation_group(self, queue: str, *, timeout: Duration | None = 0) -> UUID | None:
        """Lock the next free group that has messages, and return its id; None if there is none in time.

        Nothing is received: it is for loading state that is kept by group, before
        ``receive(conversation_group_id=)``, and only of use in a transaction. It waits as :meth:`receive`
        does.

        Raises:
            QueueNotFound, QueueDisabledError, PermissionDenied: 208, 9617, 229.
        """
        steps = statements.get_conversation_group(queue, timeout, self._session.is_in_transaction())
        return self._session.run(steps)


class AsyncTransaction:
    """The block of ``async with broker.transaction():``; :class:`Transaction` for asyncio.

    Tasks that are started in the block share it.
    """

    def __init__(self, session: _AsyncSession, outer: AsyncTransaction | None) -> None:
        self._session = session
        self._outer = outer
        self._is_over = False
        self._is_touched = False
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._held = AsyncExitStack()
        # Else one task's empty poll could roll back what another has just done.
        self.lock: asyncio.Lock = outer.lock if outer else asyncio.Lock()

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
        _close_block(self)
        async with self.lock:
            self._is_over = True
            if self._connection is None:
                return _is_rollback(error)
            with broker_errors():
                return await self._held.__aexit__(error_type, error, traceback) is True

    def is_of(self, session: _AsyncSession) -> bool:
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
        if self._connection is None:
            async with AsyncExitStack() as held:
                if self._outer:
                    connection = await self._outer.begun()
                else:
                    connection = await held.enter_async_context(self._session.lend())
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


class _AsyncSession:
    """Runs steps on a connection or a pool, in the transaction block around the call if there is one."""

    def __init__(
        self, source: psycopg.AsyncConnection[Any] | AsyncConnectionPool[Any], owns_source: bool
    ) -> None:
        self._source = source
        self._owns_source = owns_source
        self._is_own_session: bool | None = None
        self.validations = Validations()

    @property
    def begins_at_once(self) -> bool:
        return isinstance(self._source, psycopg.AsyncConnection) and not self._owns_source

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        if isinstance(self._source, psycopg.AsyncConnection):
            yield self._source
        else:
            async with self._source.connection() as connection:
                yield connection

    def transaction(self) -> AsyncTransaction:
        return AsyncTransaction(self, self._block())

    def is_in_transaction(self) -> bool:
        block = self._block()
        if block is not None:
            return block.is_touched
        return isinstance(self._source, psycopg.AsyncConnection) and not _is_idle(self._source)

    async def close(self) -> None:
        if self._owns_source:
            await self._source.close()

    async def run(self, steps: Steps[Result]) -> Result:
        try:
            step = next(steps)
            while True:
                rows = await self._wait(step) if isinstance(step, Pause) else await self._fetch(step)
                step = steps.send(rows)
        except StopIteration as end:
            result: Result = end.value
            return result

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
                await asyncio.sleep(pause.seconds)
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
            if isinstance(block, AsyncTransaction) and block.is_of(self):
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
            return await (await cursor.execute(query.sql, query.parameters, binary=True)).fetchall()


class AsyncBroker:
    """The broker of one database, from :func:`connect_async`: :class:`Broker` for asyncio."""

    def __init__(
        self, source: psycopg.AsyncConnection[Any] | AsyncConnectionPool[Any], *, owns_source: bool = False
    ) -> None:
        self._session = _AsyncSession(source, owns_source)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, if the broker made it from a URL; one's own connection or pool stays open."""
        await self._session.close()

    def transaction(self) -> AsyncTransaction:
        """Return a transaction for ``async with``; see :meth:`Broker.transaction`."""
        return self._session.transaction()

    async def begin_dialog(
        self,
        from_service: str,
        to_service: str,
        contract: str = "DEFAULT",
        *,
        broker_instance: str | None = None,
        related_conversation: AsyncConversation | UUID | None = None,
        related_conversation_group: UUID | None = None,
        lifetime: Duration | None = None,
        encryption: bool = True,
    ) -> AsyncConversation:
        """Begin a dialog and return this side of it; see :meth:`Broker.begin_dialog`."""
        related = related_conversation
        steps = statements.begin_dialog(
            from_service,
            to_service,
            contract,
            broker_instance=broker_instance,
            related_conversation=related.handle if isinstance(related, AsyncConversation) else related,
            related_conversation_group=related_conversation_group,
            lifetime=lifetime,
            encryption=encryption,
        )
        return AsyncConversation(await self._session.run(steps), self._session)

    def conversation(self, handle: UUID | str) -> AsyncConversation:
        """Return the conversation with a handle that the program stored; the database is not asked."""
        return AsyncConversation(handle if isinstance(handle, UUID) else UUID(handle), self._session)

    async def send_all(
        self, conversations: Iterable[AsyncConversation | UUID], message_type: str, body: Body = NO_BODY
    ) -> None:
        """Send one message on many conversations, on all or on none; see :meth:`Broker.send_all`."""
        handles = [one.handle if isinstance(one, AsyncConversation) else one for one in conversations]
        await self._session.run(statements.send_all(self._session.validations, handles, message_type, body))

    async def receive(
        self,
        queue: str,
        *,
        top: int | None = None,
        conversation_handle: UUID | None = None,
        conversation_group_id: UUID | None = None,
        timeout: Duration | None = 0,  # noqa: ASYNC109 - the database's, which a cancelled task would not know of
    ) -> list[AsyncMessage]:
        """Take messages of one conversation group from a queue; see :meth:`Broker.receive`."""
        steps = statements.receive(
            queue,
            top,
            conversation_handle=conversation_handle,
            conversation_group_id=conversation_group_id,
            timeout=timeout,
            is_in_transaction=self._session.is_in_transaction(),
        )
        rows = await self._session.run(steps)
        return [AsyncMessage(*(*row, self.conversation(row[statements.HANDLE]))) for row in rows]

    async def receive_groups(
        self,
        queue: str,
        max_groups: int,
        *,
        top: int | None = None,
        timeout: Duration | None = 0,  # noqa: ASYNC109 - the database's
    ) -> list[AsyncMessage]:
        """Take messages of several conversation groups in one call; see :meth:`Broker.receive_groups`."""
        steps = statements.receive_groups(
            queue, max_groups, top, timeout=timeout, is_in_transaction=self._session.is_in_transaction()
        )
        rows = await self._session.run(steps)
        return [AsyncMessage(*(*row, self.conversation(row[statements.HANDLE]))) for row in rows]

    async def get_conversation_group(
        self,
        queue: str,
        *,
        timeout: Duration | None = 0,  # noqa: ASYNC109 - the database's
    ) -> UUID | None:
        """Lock the next free group that has messages; see :meth:`Broker.get_conversation_group`."""
        steps = statements.get_conversation_group(queue, timeout, self._session.is_in_transaction())
        return await self._session.run(steps)


def connect(source: str | psycopg.Connection[Any] | ConnectionPool[Any], **options: Any) -> Broker:
    """Return the broker of a database.

    Args:
        source: a libpq URL or connection string, for a connection that the broker owns and closes; or a
            psycopg connection or pool that the program has, which the broker leaves open.
        options: psycopg.connect's, with a URL: ``connect_timeout=5``, ``application_name="shop"``.

    Raises:
        psycopg.OperationalError: the database can't be reached.
        psycopg.ProgrammingError: the text is no URL or connection string; the message quotes nothing of it.
        TypeError: the source is none of these, or has options that only a URL can have.
    """
    if isinstance(source, str):
        connection = psycopg.Connection.connect(checked(source), autocommit=True, **options)
        return Broker(connection, owns_source=True)
    if not isinstance(source, psycopg.Connection | ConnectionPool):
        raise TypeError(
            f"connect() takes a URL, a psycopg.Connection or a ConnectionPool, not {type(source).__name__}."
        )
    _require_none(options)
    return Broker(source)


async def connect_async(
    source: str | psycopg.AsyncConnection[Any] | AsyncConnectionPool[Any], **options: Any
) -> AsyncBroker:
    """Return the broker of a database, for asyncio; see :func:`connect`."""
    if isinstance(source, str):
        connection = await psycopg.AsyncConnection.connect(checked(source), autocommit=True, **options)
        return AsyncBroker(connection, owns_source=True)
    if not isinstance(source, psycopg.AsyncConnection | AsyncConnectionPool):
        raise TypeError(
            "connect_async() takes a URL, a psycopg.AsyncConnection or an AsyncConnectionPool, "
            f"not {type(source).__name__}."
        )
    _require_none(options)
    return AsyncBroker(source)


def _require_none(options: dict[str, Any]) -> None:
    if options:
        raise TypeError(
            f"Only a URL takes options; the connection or pool has its own: {', '.join(options)}."
        )
