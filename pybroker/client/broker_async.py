"""Brokers: a connection or a pool through which a program talks to the broker of one database."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool

from pybroker import tracing
from pybroker.client import statements
from pybroker.client.conversation_async import AsyncConversation, AsyncMessage
from pybroker.client.session_async import AsyncSession, opened_async
from pybroker.client.sqlalchemy_source import is_sqlalchemy_async
from pybroker.connection_string import checked
from pybroker.message import NO_BODY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pybroker.client.session_async import AsyncTransaction
    from pybroker.client.sqlalchemy_source import AsyncSQLAlchemySource
    from pybroker.client.statements import Row
    from pybroker.definitions import Definition, Grant, Plan
    from pybroker.duration import Duration
    from pybroker.message import Body


class AsyncBroker:
    """The broker of one database, as :func:`connect_async` returns it.

    Outside ``broker.transaction()`` each call commits on its own: a message received so is gone, even if its
    processing fails. On a connection of the program's own, psycopg's rules hold instead: in a transaction
    that is open the call is part of it, and without autocommit a call opens one, which the program commits.

    A broker on a pool may be used by many tasks. One on a connection serves one at a time, as the
    connection does.
    """

    def __init__(
        self,
        source: psycopg.AsyncConnection[Any] | AsyncConnectionPool[Any] | AsyncSQLAlchemySource,
        *,
        owns_source: bool = False,
    ) -> None:
        self._session = AsyncSession(source, owns_source)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, if the broker made it from a URL; one's own connection or pool stays open."""
        await self._session.close()

    def transaction(self) -> AsyncTransaction:
        """Return a transaction: ``async with`` it commits at its end, and rolls back on an exception.

        Inside another one it is a savepoint. A group that is locked after a savepoint is free again after a
        rollback to it: to keep the group, lock it before, with :meth:`get_conversation_group`. ``raise
        psycopg.Rollback`` leaves the block without an error.

        ``async with broker.transaction() as transaction:`` gives ``await transaction.connection()``,
        for statements of one's own in it.
        """
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
            related_conversation=related.handle if isinstance(related, AsyncConversation) else related,
            related_conversation_group=related_conversation_group,
            lifetime=lifetime,
            encryption=encryption,
        )
        return AsyncConversation(await self._session.run(steps), self._session)

    def conversation(self, handle: UUID | str) -> AsyncConversation:
        """Return the conversation with a handle that the program stored; the database is not asked.

        Raises:
            ValueError: the text is no UUID.
        """
        return AsyncConversation(handle if isinstance(handle, UUID) else UUID(handle), self._session)

    async def send_all(
        self, conversations: Iterable[AsyncConversation | UUID], message_type: str, body: Body = NO_BODY
    ) -> None:
        """Send one message on many conversations, on all or on none; the database stores the body once.

        Args:
            conversations: conversations or their handles, each once.
            message_type: a type that all their contracts let this side send.
            body: as in :meth:`AsyncConversation.send`.

        Raises:
            ConversationNotFound: a handle is unknown (8435).
            BrokerError: there is no handle (8441), or one is there twice (8451); and as
                :meth:`AsyncConversation.send`. The message says which place in the list is meant.
        """
        handles = [one.handle if isinstance(one, AsyncConversation) else one for one in conversations]
        with tracing.sending(message_type, None, len(handles)) as traceparent:
            steps = statements.send_all(
                self._session.validations, handles, message_type, body, traceparent=traceparent
            )
            await self._session.run(steps)

    async def apply(
        self, definitions: Iterable[Definition | Grant], *, prune: bool = False, dry_run: bool = False
    ) -> Plan:
        """Create what is defined and not there, and alter what differs, in one transaction.

        Applied again it does nothing. Objects that are not defined stay, unless they are pruned.

        Args:
            definitions: what the database should have, in any order.
            prune: whether to drop what is not defined, and revoke what is granted on defined objects and not
                defined. A dropped service ends its conversations with an error. The message types of a
                dropped contract stay: its conversations may have them.
            dry_run: whether only to say what would be done.

        Returns:
            The plan: its steps were done, or would be.

        Raises:
            DefinitionError: an object is defined twice, or a contract is to change that is in use; the
                message says which steps work.
            PermissionDenied: a step needs a right that the role lacks (229).
            BrokerError: what the function of a step raises.
        """
        steps = statements.apply(list(definitions), prune=prune, is_dry_run=dry_run)
        async with self.transaction():
            plan = await self._session.run(steps)
        return plan  # noqa: RET504 - the block may end by psycopg.Rollback, and mypy knows it

    async def receive(
        self,
        queue: str,
        *,
        top: int | None = None,
        conversation_handle: UUID | None = None,
        conversation_group_id: UUID | None = None,
        timeout: Duration | None = 0,
    ) -> list[AsyncMessage]:
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
        is_traced, began = tracing.is_on(), time.time_ns()
        steps = statements.receive(
            queue,
            top,
            conversation_handle=conversation_handle,
            conversation_group_id=conversation_group_id,
            timeout=timeout,
            is_in_transaction=self._session.is_in_transaction(),
            is_traced=is_traced,
        )
        rows = await self._session.run(steps)
        return self._messages(queue, rows, began if is_traced else None)

    async def receive_groups(
        self, queue: str, max_groups: int, *, top: int | None = None, timeout: Duration | None = 0
    ) -> list[AsyncMessage]:
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
        is_traced, began = tracing.is_on(), time.time_ns()
        steps = statements.receive_groups(
            queue,
            max_groups,
            top,
            timeout=timeout,
            is_in_transaction=self._session.is_in_transaction(),
            is_traced=is_traced,
        )
        rows = await self._session.run(steps)
        return self._messages(queue, rows, began if is_traced else None)

    def _messages(self, queue: str, rows: Sequence[Row], traced_since: int | None) -> list[AsyncMessage]:
        if traced_since is None:
            return [AsyncMessage(*(*row, self.conversation(row[statements.HANDLE]))) for row in rows]
        if rows:
            tracing.received(queue, [row[-1] for row in rows], traced_since)
        return [
            AsyncMessage(*(*row[:-1], self.conversation(row[statements.HANDLE]), row[-1])) for row in rows
        ]

    async def get_conversation_group(self, queue: str, *, timeout: Duration | None = 0) -> UUID | None:
        """Lock the next free group that has messages, and return its id; None if there is none in time.

        Nothing is received: it is for loading state that is kept by group, before
        ``receive(conversation_group_id=)``, and only of use in a transaction. It waits as :meth:`receive`
        does.

        Args:
            queue: its name.
            timeout: seconds, or a timedelta, to wait for a message; None for ever.

        Raises:
            QueueNotFound, QueueDisabledError, PermissionDenied: 208, 9617, 229.
        """
        steps = statements.get_conversation_group(queue, timeout, self._session.is_in_transaction())
        return await self._session.run(steps)


async def connect_async(
    source: str | psycopg.AsyncConnection[Any] | AsyncConnectionPool[Any] | AsyncSQLAlchemySource,
    **options: Any,
) -> AsyncBroker:
    """Return the broker of a database.

    Args:
        source: a libpq URL or connection string, for a connection that the broker owns and closes; or a
            psycopg connection or pool that the program has, or an AsyncConnection or AsyncSession of
            SQLAlchemy on psycopg, which the broker leaves open.
        options: psycopg.connect's, with a URL: ``connect_timeout=5``, ``application_name="shop"``.

    Raises:
        psycopg.OperationalError: the database can't be reached.
        psycopg.ProgrammingError: the text is no URL or connection string; the message quotes nothing of it.
        TypeError: the source is none of these, or has options that only a URL can have.
    """
    if isinstance(source, str):
        return AsyncBroker(await opened_async(checked(source), **options), owns_source=True)
    if not isinstance(source, psycopg.AsyncConnection | AsyncConnectionPool) and not is_sqlalchemy_async(
        source
    ):
        raise TypeError(
            "connect_async() takes a URL, a psycopg.AsyncConnection, an AsyncConnectionPool, or SQLAlchemy's "
            f"AsyncConnection or AsyncSession, not {type(source).__name__}."
        )
    _require_none(options)
    return AsyncBroker(source)


def _require_none(options: dict[str, Any]) -> None:
    if options:
        raise TypeError(
            f"Only a URL takes options; the connection or pool has its own: {', '.join(options)}."
        )
