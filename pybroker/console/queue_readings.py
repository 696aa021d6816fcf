"""What the pages of one queue show: by name, with limits, and never the whole of a large queue or body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    import psycopg

    from pybroker.status_readings import QueueStatus

SHOWN, LOG_SHOWN, BODY_BYTES = 50, 20, 65_536
# broker.queue_messages numbers what waits, and for that reads the whole queue.
NUMBERED_MESSAGES = 1_000

_QUEUE = """
select q.object_id as queue_id, q.name, q.is_receive_enabled and q.is_enqueue_enabled as is_enabled,
  q.is_retention_enabled, q.is_activation_enabled, q.activation_procedure, q.max_readers, m.state as monitor
from broker.service_queues q
left join broker.dm_broker_queue_monitors m on m.queue_id = q.object_id
where q.name = %s
"""
_COLUMNS = """m.queuing_order, m.status, m.priority, m.message_type_name, m.service_name,
  m.conversation_handle, m.conversation_group_id, m.message_enqueue_time,
  octet_length(m.message_body) as size, m.message_sequence_number"""
_NUMBERED = f"""
select {_COLUMNS}, null::bytea as start
from broker.queue_messages m
where m.queue_id = %s
order by m.priority desc, m.queuing_order
limit %s
"""  # noqa: S608 - the columns are ours
_OF_FEW = f"""
select {_COLUMNS}, pg_catalog.substr(m.message_body, 1, %s) as start
from broker.queue_messages m
where m.queue_id = %s and m.queuing_order = %s
limit 1
"""  # noqa: S608 - the columns are ours
_PEEKED = """
select m.queuing_order, 1 as status, m.priority, m.message_type_name, m.service_name,
  m.conversation_handle, m.conversation_group_id, m.message_enqueue_time, m.body_size as size,
  null::bigint as message_sequence_number, m.body_start as start
from broker.peek(%(queue)s, %(top)s, %(priority)s, %(order)s, %(bytes)s) m
"""
_DEPTH = """
select ready, retained, incomplete, is_estimate from broker.queue_depths where queue_name = %s
"""
_GROUPS = """
select g.conversation_group_id, g.messages, g.oldest_enqueue_time, g.pid, g.role_name::text as role, g.state,
  g.held_since, g.query
from broker.queue_groups(%s) g
"""
_LOG = """
select l."time", l.severity, l.number, l.text
from broker.activation_log l
where l.queue_name = %s
order by l.id desc
limit %s
"""


@dataclass(frozen=True)
class Queue:
    """A queue as it was defined, and the state of its monitor."""

    queue_id: int
    name: str
    is_enabled: bool
    is_retention_enabled: bool
    is_activation_enabled: bool
    activation_procedure: str | None
    max_readers: int | None
    monitor: str | None


@dataclass(frozen=True)
class Depth:
    """How many messages a queue has."""

    ready: int
    retained: int
    incomplete: int
    is_estimate: bool

    @classmethod
    def of(cls, read: QueueStatus) -> Depth:
        """Take it from the overview."""
        return cls(read.ready, read.retained, read.incomplete, read.is_estimate)

    @property
    def messages(self) -> int:
        """All of them."""
        return self.ready + self.retained + self.incomplete


@dataclass(frozen=True)
class Message:
    """A message without its body, or with its first bytes.

    Attributes:
        size: of the whole body, in bytes; None for no body.
        message_sequence_number: None where nothing was numbered.
    """

    queuing_order: int
    status: int
    priority: int
    message_type_name: str
    service_name: str
    conversation_handle: UUID
    conversation_group_id: UUID
    message_enqueue_time: datetime
    size: int | None
    message_sequence_number: int | None
    start: bytes | None


@dataclass(frozen=True)
class Group:
    """A conversation group among the first messages, and the session that holds it; None for none.

    Attributes:
        messages: how many of the first 1,000 it has.
        query: what the session ran last; None for who may not see it.
    """

    conversation_group_id: UUID
    messages: int
    oldest_enqueue_time: datetime
    pid: int | None
    role: str | None
    state: str | None
    held_since: datetime | None
    query: str | None


@dataclass(frozen=True)
class LogLine:
    """What an activated procedure put out, or how it ended."""

    time: datetime
    severity: str | None
    number: int
    text: str | None


def queue_of(connection: psycopg.Connection[Any], name: str) -> Queue | None:
    """Return the queue; None if there is none that the role may see."""
    # PostgreSQL has no text with a zero byte.
    if "\0" in name:
        return None
    return connection.cursor(row_factory=class_row(Queue)).execute(_QUEUE, (name,)).fetchone()


def depth_of(connection: psycopg.Connection[Any], queue: Queue) -> Depth:
    """Return how many messages there are: never by a scan."""
    found = connection.cursor(row_factory=class_row(Depth)).execute(_DEPTH, (queue.name,)).fetchone()
    return found or Depth(0, 0, 0, is_estimate=False)


def messages_of(
    connection: psycopg.Connection[Any], queue: Queue, depth: Depth, after: tuple[int, int] | None
) -> list[Message]:
    """Return a page of messages without bodies, behind a priority and queuing order; numbered if few."""
    cursor = connection.cursor(row_factory=class_row(Message))
    if after is None and depth.messages <= NUMBERED_MESSAGES:
        return cursor.execute(_NUMBERED, (queue.queue_id, SHOWN)).fetchall()
    priority, order = after or (None, None)
    page = {"queue": queue.name, "top": SHOWN, "priority": priority, "order": order, "bytes": 0}
    return cursor.execute(_PEEKED, page).fetchall()


def message_of(
    connection: psycopg.Connection[Any], queue: Queue, priority: int, order: int
) -> Message | None:
    """Return a message with the start of its body: one that RECEIVE could take, or one of few."""
    cursor = connection.cursor(row_factory=class_row(Message))
    before = {"queue": queue.name, "top": 1, "priority": priority, "order": order - 1, "bytes": BODY_BYTES}
    found = cursor.execute(_PEEKED, before).fetchone()
    if found is not None and found.queuing_order == order:
        return found
    if depth_of(connection, queue).messages > NUMBERED_MESSAGES:
        return None
    return cursor.execute(_OF_FEW, (BODY_BYTES, queue.queue_id, order)).fetchone()


def groups_of(connection: psycopg.Connection[Any], queue: Queue) -> list[Group]:
    """Return the groups that RECEIVE takes next, at most 50."""
    return connection.cursor(row_factory=class_row(Group)).execute(_GROUPS, (queue.name,)).fetchall()


def log_of(connection: psycopg.Connection[Any], queue: Queue) -> list[LogLine]:
    """Return what activation logged last."""
    return connection.cursor(row_factory=class_row(LogLine)).execute(_LOG, (queue.name, LOG_SHOWN)).fetchall()
