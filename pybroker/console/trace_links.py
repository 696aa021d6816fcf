"""The traces that waiting messages of a conversation belong to, and where a tracing system shows each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from psycopg.rows import class_row

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    import psycopg

TRACE_ID = "{trace_id}"
LOOKED_INTO, SHOWN = 1_000, 20

_OF_CONVERSATION = """
select pg_catalog.substr(t.traceparent, 4, 32) as trace_id, pg_catalog.count(*) as messages,
  pg_catalog.max(t.noted_at) as noted_at
from (
  select p.traceparent, p.noted_at from broker.traceparents p where p.conversation_id = %s limit %s
) t
group by pg_catalog.substr(t.traceparent, 4, 32)
order by pg_catalog.max(t.noted_at) desc, 1
limit %s
"""
_OF_MESSAGE = """
select pg_catalog.substr(p.traceparent, 4, 32) as trace_id, 1 as messages, p.noted_at
from broker.traceparents p
where p.conversation_handle = %s and p.queuing_order = %s
"""


@dataclass(frozen=True)
class Trace:
    """A trace, how many waiting messages belong to it, and when the last of them came."""

    trace_id: str
    messages: int
    noted_at: datetime


def traces_of(connection: psycopg.Connection[Any], conversation_id: UUID) -> list[Trace]:
    """Return the newest traces of a conversation's first thousand messages that have one."""
    cursor = connection.cursor(row_factory=class_row(Trace))
    return cursor.execute(_OF_CONVERSATION, (conversation_id, LOOKED_INTO, SHOWN)).fetchall()


def trace_of(connection: psycopg.Connection[Any], handle: UUID, order: int) -> Trace | None:
    """Return the trace of one message; None for one without."""
    return connection.cursor(row_factory=class_row(Trace)).execute(_OF_MESSAGE, (handle, order)).fetchone()


def checked(template: str) -> str:
    """Return the template of an address.

    Raises:
        ValueError: it is no address of http or https that names {trace_id} once.
    """
    # One that is put together from parts would let a trace's id say where a link leads.
    address = urlsplit(template.replace(TRACE_ID, "0"))
    if address.scheme not in ("http", "https") or not address.hostname or re.search(r"\s", template):
        message = f"{template!r} is no address: give one such as https://traces.example/trace/{TRACE_ID}"
        raise ValueError(message)
    if template.count(TRACE_ID) != 1 or TRACE_ID in urlsplit(template).netloc:
        message = f"{template!r} must have {TRACE_ID} once, behind the host"
        raise ValueError(message)
    return template


def address_of(trace: Trace, template: str | None) -> str | None:
    """Return where the tracing system shows a trace; None if nobody said where that is."""
    return None if template is None else template.replace(TRACE_ID, trace.trace_id)
