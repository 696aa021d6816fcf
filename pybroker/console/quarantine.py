"""Quarantined conversations: which, why, and which of them a filter chooses."""

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

SHOWN = 50
_LOOKED_INTO = 10_000
FILTERS = ("queue", "type", "error")

_QUARANTINED = """
select z.conversation_handle, z.queue_name as queue, z.service_name as service, z.far_service,
  z.message_type_name as type, z.message_enqueue_time as came, z.failures, z.last_error as error,
  z.quarantined_at, z.retry_at
from (
  select v.conversation_handle, v.queue_name, v.service_name, v.far_service, v.message_type_name,
    v.message_enqueue_time, v.failures, v.last_error, v.quarantined_at, v.retry_at
  from broker.quarantine v
  limit %(looked_into)s
) z
where (%(queue)s::text is null or z.queue_name = %(queue)s)
  and (%(type)s::text is null or z.message_type_name = %(type)s)
  and (%(error)s::text is null or pg_catalog.strpos(z.last_error, %(error)s) > 0)
order by z.quarantined_at, z.conversation_handle
limit %(shown)s
"""


@dataclass(frozen=True)
class Quarantined:
    """A conversation that was set aside, and the message that failed."""

    conversation_handle: UUID
    queue: str
    service: str
    far_service: str
    type: str
    came: datetime
    failures: int
    error: str | None
    quarantined_at: datetime
    retry_at: datetime | None


def chosen(connection: psycopg.Connection[Any], wanted: dict[str, str | None]) -> list[Quarantined]:
    """Return the conversations that the filters choose: those first that are there longest."""
    cursor = connection.cursor(row_factory=class_row(Quarantined))
    return cursor.execute(_QUARANTINED, {"looked_into": _LOOKED_INTO, "shown": SHOWN, **wanted}).fetchall()


def quarantine(request: Request) -> Response:
    """List what is in quarantine, by queue, message type and a part of the error."""
    page = Page(request)
    wanted = {name: page.filter(name) for name in FILTERS}

    def ask(connection: psycopg.Connection[Any]) -> Shown:
        return Shown(
            "quarantine.html", {"found": chosen(connection, wanted), "wanted": wanted, "limit": SHOWN}
        )

    return page.answer(lambda: page.ask(ask))
