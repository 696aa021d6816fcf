"""The calls of schema ``broker`` as steps without I/O: the sync and the async client run the same ones.

A function here is a generator: it yields a query, is sent the rows, and returns the call's result. Where it
waits it yields a pause, and between two queries it holds no transaction.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pybroker.definitions.applying import applying
from pybroker.duration import as_interval, as_timedelta
from pybroker.errors import ArgumentError, error_of
from pybroker.message import COLUMNS, encoded
from pybroker.xml import NOT_WELL_FORMED, SchemaCollection, SchemaCollectionError, fault_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from psycopg import ConnectionInfo

    from pybroker.definitions import Definition, Grant, Plan
    from pybroker.duration import Duration
    from pybroker.message import Body
    from pybroker.xml import Fault

Result = TypeVar("Result")
Row = tuple[Any, ...]

HANDLE = COLUMNS.index("conversation_handle")

_FIRST_PAUSE = 0.003
_LONGEST_PAUSE = 0.1
# Nothing but a lost notification, or another reader's rollback, is found by looking without being notified.
_LONGEST_SLEEP = 1.0
_VALIDATION_LIFE = 60.0

_RECEIVE = (
    f"select {', '.join(COLUMNS)} "  # noqa: S608 - the names of a dataclass; not *, so that a column added later breaks nobody
    "from broker.receive(%b::text, %b::integer, %b::uuid, %b::uuid, %b::interval) m"
)
_RECEIVE_GROUPS = (
    f"select {', '.join(COLUMNS)} "  # noqa: S608 - as above
    "from broker.receive_groups(%b::text, %b::integer, %b::integer, %b::interval) m"
)
# No row where there is no group, so that a poll that found nothing looks the same for both.
_GET_CONVERSATION_GROUP = (
    "select g from broker.get_conversation_group(%b::text, %b::interval) g where g is not null"
)

# What a client that traces asks besides, of each message.
_TRACEPARENT = ", broker.get_traceparent(m) "
# What the program itself has set counts again afterwards; a list of a select is worked out in its order.
_TRACED = (
    "select pg_catalog.set_config('pybroker.traceparent', {traceparent}, true), {call},"
    " pg_catalog.set_config('pybroker.traceparent', coalesce(b.was, ''), true)"
    " from (select pg_catalog.current_setting('pybroker.traceparent', true) as was offset 0) b"
)


@dataclass(frozen=True)
class Query:
    """One statement, and its parameters.

    Attributes:
        sql: the text, with psycopg's binary placeholders.
        parameters: their values.
        is_poll: if it returns no row, the transaction that was begun for it is rolled back, as another poll
            follows after a pause.
    """

    sql: str
    parameters: Sequence[Any]
    is_poll: bool = False


@dataclass(frozen=True)
class Pause:
    """A wait for messages of a queue, outside any transaction.

    A session that can be notified sleeps until it is, and says so by the row that it sends back. Any other
    lets the seconds pass, and sends none.

    Attributes:
        queue: its name.
        seconds: how long, where no notification comes.
        longest_sleep: how many seconds at most, where one comes; 0 for a pause without one.
    """

    queue: str
    seconds: float
    longest_sleep: float


Steps = Generator[Query | Pause, list[Row], Result]


def is_own_session(backend_pid: int) -> Query:
    """Return one row unless a pooler stands between: it makes up the process ids that it tells its clients.

    There, what a session listens to and what it has locked would be another client's a moment later.
    """
    return Query("select where pg_catalog.pg_backend_pid() = %b::integer", (backend_pid,))


def sleep_on(queue: str) -> Query:
    """Return one row if the session is notified of messages from now on."""
    return Query("select where broker.sleep_on(%b::text)", (queue,))


def wake_up(queue: str) -> Query:
    """End what `sleep_on` began."""
    return Query("select broker.wake_up(%b::text)", (queue,))


class _Rule(NamedTuple):
    """What a message type demands of a body, as far as a client looks."""

    is_xml: bool
    schemas: SchemaCollection | None = None

    def fault(self, bodies: Sequence[bytes | None]) -> Fault | None:
        # What is None the server refuses, with a number of its own.
        faults = (fault_of(body, self.schemas) for body in bodies if body is not None)
        return next(filter(None, faults), None) if self.is_xml else None


class Validations:
    """Which message types are XML, and by which schemas, as far as this broker has asked.

    A client checks XML before it sends, since PostgreSQL reads no schemas and is often built without a
    parser. What is remembered for a minute may be old, which is safe: the receiver checks everything, and a
    body is refused here only after asking again.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Rule, float]] = {}
        self._schemas: dict[int, SchemaCollection | None] = {}

    def check(self, message_type: str, bodies: Sequence[bytes | None]) -> Steps[None]:
        """Refuse a body that is no XML where the message type demands it, or that does not match its schemas.

        Raises:
            MessageValidationError: 8430, as the database would.
        """
        rule, until = self._known.get(message_type, (_Rule(is_xml=False), 0.0))
        is_fresh = time.monotonic() >= until
        if is_fresh:
            rule = yield from self._ask(message_type)
        fault = rule.fault(bodies)
        if fault and not is_fresh:
            fault = (yield from self._ask(message_type)).fault(bodies)
        if fault:
            raise error_of(
                8430,
                f'The message body failed the validation of message type "{message_type}".',
                f"Send a well-formed XML document, in UTF-8, with one root element. {fault.reason}"
                if fault.number == NOT_WELL_FORMED
                else f"Send a document that matches the type's schemas. {fault.reason}",
                "S8430",
            )

    def _ask(self, message_type: str) -> Steps[_Rule]:
        rows = yield Query(
            "select validation::text = 'X', xml_collection_id"
            " from broker.service_message_types where name = %b::text",
            (message_type,),
        )
        if not rows:
            return _Rule(is_xml=False)
        is_xml, collection = rows[0]
        rule = _Rule(is_xml, (yield from self._read(collection)) if collection is not None else None)
        self._known[message_type] = (rule, time.monotonic() + _VALIDATION_LIFE)
        return rule

    def _read(self, collection: int) -> Steps[SchemaCollection | None]:
        # A collection never changes, and its number is never another's.
        if collection not in self._schemas:
            rows = yield Query(
                "select documents from broker.xml_schema_collections where xml_collection_id = %b::integer",
                (collection,),
            )
            try:
                self._schemas[collection] = SchemaCollection(rows[0][0]) if rows else None
            except SchemaCollectionError:
                # Its messages wait at the receiver, where its problem is shown.
                self._schemas[collection] = None
        return self._schemas[collection]


def begin_dialog(
    from_service: str,
    to_service: str,
    contract: str,
    *,
    broker_instance: str | None,
    related_conversation: UUID | None,
    related_conversation_group: UUID | None,
    lifetime: Duration | None,
    encryption: bool,
) -> Steps[UUID]:
    """Begin a dialog and return its handle."""
    rows = yield Query(
        "select broker.begin_dialog("
        "%b::text, %b::text, %b::text, %b::text, %b::uuid, %b::uuid, %b::interval, %b::boolean)",
        (
            from_service,
            to_service,
            contract,
            broker_instance,
            related_conversation,
            related_conversation_group,
            None if lifetime is None else as_interval(as_timedelta(lifetime)),
            encryption,
        ),
    )
    handle: UUID = rows[0][0]
    return handle


def send(
    validations: Validations, handle: UUID, message_type: str, body: Body, *, traceparent: str | None = None
) -> Steps[None]:
    """Send one message, with the trace context that it gets, if any."""
    content = encoded(body)
    yield from validations.check(message_type, (content,))
    call = "broker.send(%b::uuid, %b::text, %b::bytea)"
    yield _traced(call, (handle, message_type, content), traceparent)


def send_batch(
    validations: Validations,
    handle: UUID,
    message_type: str,
    bodies: Iterable[Body],
    *,
    traceparent: str | None = None,
) -> Steps[None]:
    """Send many messages, all with one trace context, if any."""
    contents = [encoded(body) for body in bodies]
    yield from validations.check(message_type, contents)
    call = "broker.send_batch(%b::uuid, %b::text, %b::bytea[])"
    yield _traced(call, (handle, message_type, contents), traceparent)


def send_all(
    validations: Validations,
    handles: Sequence[UUID],
    message_type: str,
    body: Body,
    *,
    traceparent: str | None = None,
) -> Steps[None]:
    """Send one message on many conversations, with the trace context that it gets, if any."""
    content = encoded(body)
    yield from validations.check(message_type, (content,))
    call = "broker.send_all(%b::uuid[], %b::text, %b::bytea)"
    yield _traced(call, (list(handles), message_type, content), traceparent)


def _traced(call: str, arguments: Row, traceparent: str | None) -> Query:
    if traceparent is None:
        return Query(f"select {call}", arguments)
    return Query(traced(call, "%b::text"), (traceparent, *arguments))


def traced(call: str, traceparent: str) -> str:
    """Return the statement that makes a call with a trace context, given as SQL."""
    return _TRACED.format(call=call, traceparent=traceparent)


def end_conversation(
    handle: UUID, error_code: int | None, error_description: str | None, cleanup: bool
) -> Steps[None]:
    """End this side of a conversation."""
    yield Query(
        "select broker.end_conversation(%b::uuid, %b::integer, %b::text, %b::boolean)",
        (handle, error_code, error_description, cleanup),
    )


def require_texts(info: ConnectionInfo) -> None:
    """Refuse a program's connection on which names and texts arrive as bytes.

    Raises:
        ArgumentError: its client_encoding is SQL_ASCII.
    """
    if info.parameter_status("client_encoding") == "SQL_ASCII":
        raise ArgumentError(
            "The connection's client_encoding is SQL_ASCII: names and texts would arrive as bytes.",
            hint="Connect with client_encoding='UTF8', or set it in the URL: ?client_encoding=UTF8.",
        )


def note_failure(handle: UUID, error: str, retry_after: Sequence[Duration] | None) -> Steps[bool]:
    """Note that a transaction failed on a conversation, and return whether that is quarantined now."""
    pauses = None if retry_after is None else [as_timedelta(pause) for pause in retry_after]
    rows = yield Query(
        "select broker.note_failure(%b::uuid, %b::text, %b::interval[])", (handle, error, pauses)
    )
    is_quarantined: bool = rows[0][0]
    return is_quarantined


def redrive(handle: UUID) -> Steps[int]:
    """Take a conversation out of quarantine and return how many messages are ready."""
    rows = yield Query("select broker.redrive(%b::uuid)", (handle,))
    ready: int = rows[0][0]
    return ready


def discard(handle: UUID) -> Steps[int]:
    """Remove the message that failed, and return how many messages of its conversation are ready."""
    rows = yield Query("select broker.discard(%b::uuid)", (handle,))
    ready: int = rows[0][0]
    return ready


def begin_timer(handle: UUID, timeout: Duration) -> Steps[None]:
    """Let a DialogTimer message come when the time is over."""
    yield Query(
        "select broker.begin_conversation_timer(%b::uuid, %b::interval)",
        (handle, as_interval(as_timedelta(timeout))),
    )


def move_conversation(handle: UUID, conversation_group_id: UUID) -> Steps[None]:
    """Let a conversation join another group."""
    yield Query("select broker.move_conversation(%b::uuid, %b::uuid)", (handle, conversation_group_id))


def get_transmission_status(handle: UUID) -> Steps[str]:
    """Return why messages of a conversation wait."""
    rows = yield Query("select broker.get_transmission_status(%b::uuid)", (handle,))
    status: str = rows[0][0]
    return status


def apply(definitions: Sequence[Definition | Grant], *, prune: bool, is_dry_run: bool) -> Steps[Plan]:
    """Make the database have what is defined, and return what was done for it."""
    statements = applying(definitions, prune=prune, is_dry_run=is_dry_run)
    try:
        statement = next(statements)
        while True:
            rows = yield Query(*statement)
            statement = statements.send(rows)
    except StopIteration as end:
        made: Plan = end.value
        return made


def receive(
    queue: str,
    top: int | None,
    *,
    conversation_handle: UUID | None,
    conversation_group_id: UUID | None,
    timeout: Duration | None,
    is_in_transaction: bool,
    is_traced: bool = False,
) -> Steps[list[Row]]:
    """Receive messages, as rows with the columns of ``broker.message``; if traced, with their contexts."""
    arguments = (queue, top, conversation_handle, conversation_group_id)
    sql = _with_traceparent(_RECEIVE, is_traced=is_traced)
    return (yield from _wait(sql, arguments, timeout, is_in_transaction))


def receive_groups(
    queue: str,
    max_groups: int,
    top: int | None,
    *,
    timeout: Duration | None,
    is_in_transaction: bool,
    is_traced: bool = False,
) -> Steps[list[Row]]:
    """Receive messages of several groups, as rows as :func:`receive` does."""
    sql = _with_traceparent(_RECEIVE_GROUPS, is_traced=is_traced)
    return (yield from _wait(sql, (queue, max_groups, top), timeout, is_in_transaction))


def _with_traceparent(sql: str, *, is_traced: bool) -> str:
    return sql.replace(" from ", f"{_TRACEPARENT}from ", 1) if is_traced else sql


def get_conversation_group(
    queue: str, timeout: Duration | None, is_in_transaction: bool
) -> Steps[UUID | None]:
    """Lock the next conversation group that has messages."""
    rows = yield from _wait(_GET_CONVERSATION_GROUP, (queue,), timeout, is_in_transaction)
    return rows[0][0] if rows else None


def _wait(sql: str, arguments: Row, timeout: Duration | None, is_in_transaction: bool) -> Steps[list[Row]]:
    nothing = timedelta(0)
    longest = None if timeout is None else as_timedelta(timeout)
    # In a transaction that has done something, nothing can be given up between two polls; and the server
    # words the refusal of a negative timeout.
    if is_in_transaction or (longest is not None and longest <= nothing):
        return (yield Query(sql, (*arguments, None if longest is None else as_interval(longest))))
    deadline = None if longest is None else time.monotonic() + longest.total_seconds()
    pause = _FIRST_PAUSE
    longest_sleep = 0.0
    while True:
        remaining = _LONGEST_SLEEP if deadline is None else deadline - time.monotonic()
        # The last call is given up too if it is empty: a wait leaves no lock behind.
        rows = yield Query(sql, (*arguments, nothing), is_poll=True)
        if rows or remaining <= 0:
            return rows
        has_slept = yield Pause(arguments[0], min(pause, remaining), min(longest_sleep, remaining))
        pause = _FIRST_PAUSE if has_slept else min(pause * 2, _LONGEST_PAUSE)
        # Not at once: while messages come quickly, none should have to notify.
        longest_sleep = _LONGEST_SLEEP
