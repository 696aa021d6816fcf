"""The transmission queue: what waits for which destination, for which reason, the oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

from pybroker.console.answering import Page, Shown

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    import psycopg
    from starlette.requests import Request
    from starlette.responses import Response

LOOKED_INTO, SHOWN = 10_000, 50
# Findings that are about the way of messages.
_OF_DELIVERY = (101, 103, 108, *range(301, 400))

_REASONS = """
select t.to_service_name as service, t.transmission_status as reason, count(*) as messages,
  min(t.enqueue_time) as oldest
from (
  select v.to_service_name, v.transmission_status, v.enqueue_time
  from broker.transmission_queue v
  limit %s
) t
group by t.to_service_name, t.transmission_status
order by min(t.enqueue_time), t.to_service_name, t.transmission_status
limit 100
"""
# The filter comes behind the limit: before it, it could scan all that waits.
_MESSAGES = """
select t.conversation_handle, t.from_service_name as sender, t.to_service_name as service,
  t.message_type_name as type, t.enqueue_time as sent, t.transmission_status as reason, t.priority
from (
  select v.conversation_handle, v.from_service_name, v.to_service_name, v.message_type_name, v.enqueue_time,
    v.transmission_status, v.priority
  from broker.transmission_queue v
  limit %(looked_into)s
) t
where (%(service)s::text is null or t.to_service_name = %(service)s)
  and (%(reason)s::text is null or left(t.transmission_status, 500) = %(reason)s)
order by t.enqueue_time
limit %(shown)s
"""


@dataclass(frozen=True)
class Reason:
    """Messages for one destination that wait for one reason; without one they are on their way."""

    service: str
    reason: str
    messages: int
    oldest: datetime


@dataclass(frozen=True)
class Waiting:
    """A message on its way."""

    conversation_handle: UUID
    sender: str
    service: str
    type: str
    sent: datetime
    reason: str
    priority: int


def transmission(request: Request) -> Response:
    """Show the transmission queue of a database, or what of it goes to one service."""
    page = Page(request)
    wanted = {"service": page.filter("to"), "reason": page.filter("reason")}

    def ask(connection: psycopg.Connection[Any]) -> Shown:
        reasons = connection.cursor(row_factory=class_row(Reason)).execute(_REASONS, (LOOKED_INTO,))
        messages = connection.cursor(row_factory=class_row(Waiting)).execute(
            _MESSAGES, {"looked_into": LOOKED_INTO, "shown": SHOWN, **wanted}
        )
        return Shown(
            "transmission.html",
            {
                "reasons": reasons.fetchall(),
                "messages": messages.fetchall(),
                "wanted": wanted,
                "looked_into": LOOKED_INTO,
                "limit": SHOWN,
            },
        )

    def read() -> Shown:
        about = page.findings(*_OF_DELIVERY)
        shown = page.ask(ask)
        return shown.beside(findings=about)

    return page.answer(read)
