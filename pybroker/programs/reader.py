# Made from reader_async.py by python -m tests.sync_twin: change that file.
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
from tenacity import Retrying, retry_if_exception_type
from tenacity.wait import wait_exponential_jitter

from pybroker import tracing
from pybroker.backoff import Backoff
from pybroker.client.broker import Broker
from pybroker.client.concurrency import wait
from pybroker.client.session import opened
from pybroker.errors import ConversationNotFound, QueueDisabledError
from pybroker.programs.conversation import ProgramConversation
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
    from pybroker.client.concurrency import Event
    from pybroker.client.conversation import Message
    from pybroker.client.session import Transaction
    from pybroker.programs.service_program import ServiceProgram

# How long one RECEIVE waits, and so at most how long an idle reader takes to notice that it is to stop.
WAIT = 1.0
# A queue that is off stays off until somebody turns it on.
_DISABLED_PAUSE = 5.0
_RECONNECT = wait_exponential_jitter(multiplier=0.2, max=30)

_logger = logging.getLogger("pybroker.app")


class Reader:
    """One reader of a program, for a thread or a task of its own."""

    def __init__(self, program: ServiceProgram, url: str, stop: Event) -> None:
        self._program = program
        self._url = url
        self._stop = stop
        self._state = statements_for(program.state_table) if program.state_table else None
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._log = _logger.getChild(program.queue)

    def run(self) -> None:
        """Read until `stop` is set; the round that runs then is finished and committed.

        Raises:
            BrokerError: what no waiting mends: there is no such queue, or no right to it.
        """
        while not self._stop.is_set():
            try:
                self._read(self._connected())
            except psycopg.OperationalError as error:
                self._log.warning("The connection was lost, connecting again: %s", in_one_line(error))

    def _connected(self) -> psycopg.Connection[Any]:
        attempts = Retrying(
            retry=retry_if_exception_type(psycopg.OperationalError),
            wait=_RECONNECT,
            sleep=self._pause,
            stop=lambda _: self._stop.is_set(),
            before_sleep=lambda state: self._log.warning(
                "Not connected, trying again: %s", in_one_line(state.outcome)
            ),
            reraise=True,
        )
        return attempts(opened, self._url)

    def _pause(self, seconds: float) -> None:
        wait(self._stop, seconds)

    def _read(self, connection: psycopg.Connection[Any]) -> None:
        with Broker(connection, owns_source=True) as broker:
            while not self._stop.is_set():
                try:
                    self._round(broker)
                except QueueDisabledError as error:
                    self._log.warning("%s %s", error.message, error.hint)
                    self._pause(_DISABLED_PAUSE)
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
                    self._note(broker, connection, failure)
                    self._pause(self._backoff.failed())
                else:
                    self._backoff.reset()

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
                    with tracing.processing(program.queue, call.messages):
                        call.function(conversation, *call.arguments())
                except Exception as error:
                    raise_as_failure(first.conversation_handle, messages, error)
            self._save(transaction, this)

    def _load(self, transaction: Transaction, message: Message) -> GroupState | None:
        if self._state is None or self._program.state is None:
            return None
        group = message.conversation_group_id
        connection = transaction.connection()
        cursor = connection.execute(self._state.load, {"group": group})
        row = cursor.fetchone()
        return GroupState(group, self._program.state, row[0] if row else None)

    def _save(self, transaction: Transaction, this: Round) -> None:
        if self._state is not None and this.state is not None and (change := this.state.change(self._state)):
            connection = transaction.connection()
            connection.execute(*change)

    def _note(self, broker: Broker, connection: psycopg.Connection[Any], failure: HandlerFailure) -> None:
        named = {"conversation_handle": str(failure.handle)}
        self._log.error("A handler failed", exc_info=failure.__cause__, extra=named)
        try:
            broker.conversation(failure.handle).note_failure(
                noted(failure.__cause__, connection.info.parameter_status("server_encoding")),
                retry_after=self._program.retry if failure.is_alone and self._program.retry else None,
            )
        except ConversationNotFound:
            self._log.info("The conversation is over: its failure is not recorded", extra=named)
