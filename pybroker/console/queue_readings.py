"""What the pages of one queue show: by name, with limits, and never the whole of a large queue or body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    import psycopg

SHOWN, LOG_SHOWN, BODY_BYTES = 50, 20, 65_536
# broker.queue_messages numbers what waits, and for that reads the whole queue.
PEEKED_MESSAGES = 1_000

_QUEUE = """
select q.object_id as queue_id, q.name, q.is_receive_enabled and q.is_enqueue_enabled as is_enabled,
  q.is_retention_enabled, q.is_activation_enabled, q.activation_procedure, q.max_readers, m.state as monitor
from broker.service_queues q
left join broker.dm_broker_queue_monitors m on m.queue_id = q.object_id
where q.name = %s
"""
_MESSAGES = """
select m.queuing_order, m.status, m.message_type_name, m.service_name, m.conversation_handle,
  m.conversation_group_id, m.message_sequence_number, m.message_enqueue_time,
  octet_length(m.message_body) as size, null::bytea as start
from broker.queue_messages m
where m.queue_id = %s
order by m.queuing_order
limit %s
"""
_MESSAGE = """
select m.queuing_order, m.status, m.message_type_name, m.service_name, m.conversation_handle,
  m.conversation_group_id, m.message_sequence_number, m.message_enqueue_time,
  octet_length(m.message_body) as size, substr(m.message_body, 1, %s) as start
from broker.queue_messages m
where m.queue_id = %s and m.queuing_order = %s
limit 1
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
class Message:
    """A message without its body, or with its first bytes; `size` is the whole body's, None for no body."""

    queuing_order: int
    status: int
    message_type_name: str
    service_name: str
    conversation_handle: UUID
    conversation_group_id: UUID
    message_sequence_number: int
    message_enqueue_time: datetime
    size: int | None
    start: bytes | None


@dataclass(frozen=True)
class LogLine:
    """What an activated procedure put out, or how it ended."""

    time: datetime
    severity: str | None
    number: int
    text: str | None


def queue_of(connection: psycopg.Connection[Any], name: str) -> Queue | None:
    """Return the queue; None if there is none that the role may see."""
    return connection.cursor(row_factory=class_row(Queue)).execute(_QUEUE, (name,)).fetchone()


def messages_of(connection: psycopg.Connection[Any], queue: Queue) -> list[Message]:
    """Return the first messages, without their bodies."""
    cursor = connection.cursor(row_factory=class_row(Message))
    return cursor.execute(_MESSAGES, (queue.queue_id, SHOWN)).fetchall()


def message_of(connection: psycopg.Connection[Any], queue: Queue, order: int) -> Message | None:
    """Return one message with the start of its body."""
    cursor = connection.cursor(row_factory=class_row(Message))
    return cursor.execute(_MESSAGE, (BODY_BYTES, queue.queue_id, order)).fetchone()


def log_of(connection: psycopg.Connection[Any], queue: Queue) -> list[LogLine]:
    """Return what activation logged last."""
    return connection.cursor(row_factory=class_row(LogLine)).execute(_LOG, (queue.name, LOG_SHOWN)).fetchall()
