"""The transmission queue: what waits for which destination, for which reason, the oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

# Read once for both lists. The filter comes behind the limit: before it, it could scan all that waits.
_WAITING = """
with looked_into as materialized (
  select v.conversation_handle, v.from_service_name as sender, v.to_service_name as service,
    v.message_type_name as type, v.enqueue_time as moment, v.transmission_status as reason, v.priority
  from broker.transmission_queue v
  limit %(looked_into)s
),
reasons as (
  select t.service, t.reason, pg_catalog.count(*) as messages, pg_catalog.min(t.moment) as moment
  from looked_into t
  group by t.service, t.reason
  order by pg_catalog.min(t.moment), t.service, t.reason
  limit 100
),
messages as (
  select t.conversation_handle, t.sender, t.service, t.type, t.moment, t.reason, t.priority
  from looked_into t
  where (%(service)s::text is null or t.service = %(service)s)
    and (%(reason)s::text is null or pg_catalog.left(t.reason, 500) = %(reason)s)
  order by t.moment
  limit %(shown)s
)
select m.conversation_handle, m.sender, m.service, m.type, m.moment, m.reason, m.priority, 1 as messages
from messages m
union all
select null, null, r.service, null, r.moment, r.reason, null, r.messages
from reasons r
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
        given = {"looked_into": LOOKED_INTO, "shown": SHOWN, **wanted}
        rows = connection.execute(_WAITING, given).fetchall()
        messages = [Waiting(*row[:7]) for row in rows if row[0] is not None]
        reasons = [Reason(row[2], row[5], row[7], row[4]) for row in rows if row[0] is None]
        return Shown(
            "transmission.html",
            {
                "reasons": sorted(reasons, key=lambda one: (one.oldest, one.service, one.reason or "")),
                "messages": sorted(messages, key=lambda one: one.sent),
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
