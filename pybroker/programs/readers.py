"""Queue readers of service programs: receive, call the handlers, commit; again until they are told to stop.

A reader has a connection of its own. What it receives in one round is one transaction. If a handler fails the
transaction is rolled back, and the failure is recorded for its conversation, with its error, so that the
queue's poison handling knows which message it was.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure
from tenacity import AsyncRetrying, Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set
from tenacity.wait import wait_exponential_jitter

from pybroker.client.broker import Broker
from pybroker.client.broker_async import AsyncBroker
from pybroker.errors import ConversationNotFound, QueueDisabledError
from pybroker.programs.conversation import AsyncProgramConversation, ProgramConversation, Round
from pybroker.programs.group_state import GroupState, statements_for

if TYPE_CHECKING:
    import threading
    from uuid import UUID

    from pybroker.client.conversation import Message
    from pybroker.client.conversation_async import AsyncMessage
    from pybroker.client.session import Transaction
    from pybroker.client.session_async import AsyncTransaction
    from pybroker.programs.service_program import ServiceProgram

# How long one RECEIVE waits, and so at most how long an idle reader takes to notice that it is to stop.
WAIT = 1.0
# A failing message comes back at once; without a pause a broken handler would take a processor.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
# A queue that is off stays off until somebody turns it on.
_DISABLED_PAUSE = 5.0
_RECONNECT = wait_exponential_jitter(multiplier=0.2, max=30)

logger = logging.getLogger("pybroker.app")


class HandlerFailure(Exception):  # noqa: N818
    """A handler raised, as the cause says, with a message of this conversation."""

    def __init__(self, handle: UUID) -> None:
        super().__init__(handle)
        self.handle = handle


class _Pauses:
    """How long to wait after failures in a row."""

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE

    def failed(self) -> float:
        pause, self._next = self._next, min(self._next * 2, _LONGEST_PAUSE)
        return pause

    def reset(self) -> None:
        self._next = _FIRST_PAUSE


class Reader:
    """One reader of a sync program, for a thread of its own."""

    def __init__(self, program: ServiceProgram, url: str, stop: threading.Event) -> None:
        self._program = program
        self._url = url
        self._stop = stop
        self._state = statements_for(program.state_table) if program.state_table else None
        self._pauses = _Pauses()
        self._log = logger.getChild(program.queue)

    def run(self) -> None:
        """Read until `stop` is set; the round that runs then is finished and committed.

        Raises:
            BrokerError: what no waiting mends: there is no such queue, or no right to it.
        """
        while not self._stop.is_set():
            try:
                self._read(self._connected())
            except psycopg.OperationalError as error:
                self._log.warning("The connection was lost, connecting again: %s", _line(error))

    def _connected(self) -> psycopg.Connection[Any]:
        attempts = Retrying(
            retry=retry_if_exception_type(psycopg.OperationalError),
            wait=_RECONNECT,
            sleep=sleep_using_event(self._stop),
            stop=stop_when_event_set(self._stop),
            before_sleep=lambda state: self._log.warning(
                "Not connected, trying again: %s", _line(state.outcome)
            ),
            reraise=True,
        )
        return attempts(psycopg.connect, self._url, autocommit=True)

    def _read(self, connection: psycopg.Connection[Any]) -> None:
        with Broker(connection, owns_source=True) as broker:
            while not self._stop.is_set():
                try:
                    self._round(broker)
                except QueueDisabledError as error:
                    self._log.warning("%s", error.message)
                    self._stop.wait(_DISABLED_PAUSE)
                except (DeadlockDetected, SerializationFailure) as error:
                    self._log.info("The transaction is tried again: %s", _line(error))
                except HandlerFailure as failure:
                    if connection.closed:
                        raise psycopg.OperationalError(_line(failure.__cause__)) from failure
                    self._note(broker, failure)
                    self._stop.wait(self._pauses.failed())
                else:
                    self._pauses.reset()

    def _round(self, broker: Broker) -> None:
        program = self._program
        with broker.transaction() as transaction:
            messages = broker.receive(program.queue, top=program.top, timeout=WAIT)
            if not messages:
                return
            this = Round(self._load(transaction, messages[0]))
            for call in program.calls(messages):
                first: Message = call.messages[0]
                if call.function is None or first.conversation_handle in this.ended:
                    continue
                conversation = ProgramConversation(
                    first.conversation_handle,
                    first.conversation._session,  # noqa: SLF001 - the same conversation, with more to it
                    first.conversation_group_id,
                    first.service_name,
                    call.messages,
                    broker,
                    transaction,
                    this,
                )
                try:
                    call.function(conversation, *call.arguments())
                except Exception as error:
                    _raise_as_failure(first.conversation_handle, error)
            self._save(transaction, this)

    def _load(self, transaction: Transaction, message: Message) -> GroupState | None:
        if self._state is None or self._program.state is None:
            return None
        group = message.conversation_group_id
        row = transaction.connection().execute(self._state.load, {"group": group}).fetchone()
        return GroupState(group, self._program.state, row[0] if row else None)

    def _save(self, transaction: Transaction, this: Round) -> None:
        if self._state is not None and this.state is not None and (change := this.state.change(self._state)):
            transaction.connection().execute(*change)

    def _note(self, broker: Broker, failure: HandlerFailure) -> None:
        self._log.error("A handler failed on conversation %s", failure.handle, exc_info=failure.__cause__)
        try:
            broker.conversation(failure.handle).note_failure(_line(failure.__cause__))
        except ConversationNotFound:
            self._log.info("Conversation %s is over: its failure is not recorded", failure.handle)


class AsyncReader:
    """One reader of an async program, for a task of its own; :class:`Reader` for asyncio."""

    def __init__(self, program: ServiceProgram, url: str, stop: asyncio.Event) -> None:
        self._program = program
        self._url = url
        self._stop = stop
        self._state = statements_for(program.state_table) if program.state_table else None
        self._pauses = _Pauses()
        self._log = logger.getChild(program.queue)

    async def run(self) -> None:
        """Read until `stop` is set; see :meth:`Reader.run`."""
        while not self._stop.is_set():
            try:
                await self._read(await self._connected())
            except psycopg.OperationalError as error:
                self._log.warning("The connection was lost, connecting again: %s", _line(error))

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(psycopg.OperationalError),
            wait=_RECONNECT,
            sleep=self._pause,
            stop=lambda _: self._stop.is_set(),
            before_sleep=lambda state: self._log.warning(
                "Not connected, trying again: %s", _line(state.outcome)
            ),
            reraise=True,
        )
        return await attempts(psycopg.AsyncConnection.connect, self._url, autocommit=True)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    async def _read(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async with AsyncBroker(connection, owns_source=True) as broker:
            while not self._stop.is_set():
                try:
                    await self._round(broker)
                except QueueDisabledError as error:
                    self._log.warning("%s", error.message)
                    await self._pause(_DISABLED_PAUSE)
                except (DeadlockDetected, SerializationFailure) as error:
                    self._log.info("The transaction is tried again: %s", _line(error))
                except HandlerFailure as failure:
                    if connection.closed:
                        raise psycopg.OperationalError(_line(failure.__cause__)) from failure
                    await self._note(broker, failure)
                    await self._pause(self._pauses.failed())
                else:
                    self._pauses.reset()

    async def _round(self, broker: AsyncBroker) -> None:
        program = self._program
        async with broker.transaction() as transaction:
            messages = await broker.receive(program.queue, top=program.top, timeout=WAIT)
            if not messages:
                return
            this = Round(await self._load(transaction, messages[0]))
            for call in program.calls(messages):
                first: AsyncMessage = call.messages[0]
                if call.function is None or first.conversation_handle in this.ended:
                    continue
                conversation = AsyncProgramConversation(
                    first.conversation_handle,
                    first.conversation._session,  # noqa: SLF001 - the same conversation, with more to it
                    first.conversation_group_id,
                    first.service_name,
                    call.messages,
                    broker,
                    transaction,
                    this,
                )
                try:
                    await call.function(conversation, *call.arguments())
                except Exception as error:
                    _raise_as_failure(first.conversation_handle, error)
            await self._save(transaction, this)

    async def _load(self, transaction: AsyncTransaction, message: AsyncMessage) -> GroupState | None:
        if self._state is None or self._program.state is None:
            return None
        group = message.conversation_group_id
        connection = await transaction.connection()
        row = await (await connection.execute(self._state.load, {"group": group})).fetchone()
        return GroupState(group, self._program.state, row[0] if row else None)

    async def _save(self, transaction: AsyncTransaction, this: Round) -> None:
        if self._state is not None and this.state is not None and (change := this.state.change(self._state)):
            await (await transaction.connection()).execute(*change)

    async def _note(self, broker: AsyncBroker, failure: HandlerFailure) -> None:
        self._log.error("A handler failed on conversation %s", failure.handle, exc_info=failure.__cause__)
        try:
            await broker.conversation(failure.handle).note_failure(_line(failure.__cause__))
        except ConversationNotFound:
            self._log.info("Conversation %s is over: its failure is not recorded", failure.handle)


def _raise_as_failure(handle: UUID, error: Exception) -> None:
    if isinstance(error, DeadlockDetected | SerializationFailure):
        raise error
    raise HandlerFailure(handle) from error


def _line(error: Any) -> str:
    found = error.exception() if hasattr(error, "exception") and callable(error.exception) else error
    text = " ".join(str(found).split())
    return f"{type(found).__name__}: {text}" if text else type(found).__name__
