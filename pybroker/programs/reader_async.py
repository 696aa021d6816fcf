"""Queue readers of service programs: receive, call the handlers, commit; again until they are told to stop.

A reader has a connection of its own. What it receives in one round is one transaction. If a handler fails the
transaction is rolled back, and the failure is recorded for its conversation, with its error, so that the
queue's poison handling knows which message it was.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure
from tenacity import AsyncRetrying, retry_if_exception_type
from tenacity.wait import wait_exponential_jitter

from pybroker import tracing
from pybroker.backoff import Backoff
from pybroker.client.broker_async import AsyncBroker
from pybroker.client.concurrency import wait_async
from pybroker.client.session_async import opened_async
from pybroker.errors import ConversationNotFound, QueueDisabledError
from pybroker.programs.conversation_async import AsyncProgramConversation
from pybroker.programs.failures import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    HandlerFailure,
    in_one_line,
    noted,
    raise_as_failure,
)
from pybroker.programs.group_state import GroupState, statements_for
from pybroker.programs.round import Round

if TYPE_CHECKING:
    from pybroker.client.concurrency import AsyncEvent
    from pybroker.client.conversation_async import AsyncMessage
    from pybroker.client.session_async import AsyncTransaction
    from pybroker.programs.service_program import ServiceProgram

# How long one RECEIVE waits, and so at most how long an idle reader takes to notice that it is to stop.
WAIT = 1.0
# A queue that is off stays off until somebody turns it on.
_DISABLED_PAUSE = 5.0
_RECONNECT = wait_exponential_jitter(multiplier=0.2, max=30)

_logger = logging.getLogger("pybroker.app")


class AsyncReader:
    """One reader of a program, for a thread or a task of its own."""

    def __init__(self, program: ServiceProgram, url: str, stop: AsyncEvent) -> None:
        self._program = program
        self._url = url
        self._stop = stop
        self._state = statements_for(program.state_table) if program.state_table else None
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._log = _logger.getChild(program.queue)

    async def run(self) -> None:
        """Read until `stop` is set; the round that runs then is finished and committed.

        Raises:
            BrokerError: what no waiting mends: there is no such queue, or no right to it.
        """
        while not self._stop.is_set():
            try:
                await self._read(await self._connected())
            except psycopg.OperationalError as error:
                self._log.warning("The connection was lost, connecting again: %s", in_one_line(error))

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(psycopg.OperationalError),
            wait=_RECONNECT,
            sleep=self._pause,
            stop=lambda _: self._stop.is_set(),
            before_sleep=lambda state: self._log.warning(
                "Not connected, trying again: %s", in_one_line(state.outcome)
            ),
            reraise=True,
        )
        return await attempts(opened_async, self._url)

    async def _pause(self, seconds: float) -> None:
        await wait_async(self._stop, seconds)

    async def _read(self, connection: psycopg.AsyncConnection[Any]) -> None:
        async with AsyncBroker(connection, owns_source=True) as broker:
            while not self._stop.is_set():
                try:
                    await self._round(broker)
                except QueueDisabledError as error:
                    self._log.warning("%s %s", error.message, error.hint)
                    await self._pause(_DISABLED_PAUSE)
                except (DeadlockDetected, SerializationFailure) as error:
                    self._log.info("The transaction is tried again: %s", in_one_line(error))
                except psycopg.InternalError as error:
                    # So psycopg may call it when a pooler's session ends before COMMIT.
                    if not connection.closed:
                        raise
                    raise psycopg.OperationalError(in_one_line(error)) from error
                except HandlerFailure as failure:
                    if connection.closed:
                        raise psycopg.OperationalError(in_one_line(failure.__cause__)) from failure
                    await self._note(broker, connection, failure)
                    await self._pause(self._backoff.failed())
                else:
                    self._backoff.reset()

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
                    with tracing.processing(program.queue, call.messages):
                        await call.function(conversation, *call.arguments())
                except Exception as error:
                    raise_as_failure(first.conversation_handle, messages, error)
            await self._save(transaction, this)

    async def _load(self, transaction: AsyncTransaction, message: AsyncMessage) -> GroupState | None:
        if self._state is None or self._program.state is None:
            return None
        group = message.conversation_group_id
        connection = await transaction.connection()
        cursor = await connection.execute(self._state.load, {"group": group})
        row = await cursor.fetchone()
        return GroupState(group, self._program.state, row[0] if row else None)

    async def _save(self, transaction: AsyncTransaction, this: Round) -> None:
        if self._state is not None and this.state is not None and (change := this.state.change(self._state)):
            connection = await transaction.connection()
            await connection.execute(*change)

    async def _note(
        self, broker: AsyncBroker, connection: psycopg.AsyncConnection[Any], failure: HandlerFailure
    ) -> None:
        named = {"conversation_handle": str(failure.handle)}
        self._log.error("A handler failed", exc_info=failure.__cause__, extra=named)
        try:
            await broker.conversation(failure.handle).note_failure(
                noted(failure.__cause__, connection.info.parameter_status("server_encoding")),
                retry_after=self._program.retry if failure.is_alone and self._program.retry else None,
            )
        except ConversationNotFound:
            self._log.info("The conversation is over: its failure is not recorded", extra=named)
