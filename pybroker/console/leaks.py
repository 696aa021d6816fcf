"""What only grows: conversations that nobody ends, and tables whose dead rows stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

from pybroker.console.answering import Page, Shown

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg
    from starlette.requests import Request
    from starlette.responses import Response

COUNTED = 1_000
# Old snapshots, prepared transactions, autovacuum, lifetimes and open conversations.
_OF_LEAKS = (104, 105, 106, 403, 404)

# As many probes of an index as are counted, for each service.
_SERVICES = """
select s.name as service, q.name as queue, o.open, o.far_ended, o.in_error, s.principal_id::text as owner
from broker.services s
left join broker.service_queues q on q.object_id = s.service_queue_id
cross join lateral (
  select pg_catalog.count(*) as open, pg_catalog.count(*) filter (where l.state = 'DI') as far_ended,
    pg_catalog.count(*) filter (where l.state = 'ER') as in_error
  from (
    select e.state from broker.conversation_endpoints e where e.service_id = s.service_id limit %s
  ) l
  where l.state <> 'CD'
) o
order by o.open desc, o.far_ended desc, s.name
limit 200
"""
_TABLES = """
select t.relname as name, pg_catalog.pg_total_relation_size(t.relid) as size,
  t.n_live_tup as live, t.n_dead_tup as dead,
  coalesce(greatest(t.last_autovacuum, t.last_vacuum), t.last_autovacuum, t.last_vacuum) as vacuumed
from pg_catalog.pg_stat_user_tables t
where t.schemaname = 'broker_private'
order by pg_catalog.pg_total_relation_size(t.relid) desc
limit 12
"""


@dataclass(frozen=True)
class OpenConversations:
    """A service, and the sides of conversations that it has not ended: of the first ones that are counted."""

    service: str
    queue: str | None
    open: int
    far_ended: int
    in_error: int
    owner: str


@dataclass(frozen=True)
class Table:
    """A table of the broker: bytes with its indexes, rows as PostgreSQL's statistics know them."""

    name: str
    size: int
    live: int
    dead: int
    vacuumed: datetime | None


def leaks(request: Request) -> Response:
    """Show which service keeps conversations, and which tables keep dead rows."""
    page = Page(request)

    def ask(connection: psycopg.Connection[Any]) -> Shown:
        services = connection.cursor(row_factory=class_row(OpenConversations))
        tables = connection.cursor(row_factory=class_row(Table))
        return Shown(
            "leaks.html",
            {
                "services": services.execute(_SERVICES, (COUNTED + 1,)).fetchall(),
                "tables": tables.execute(_TABLES).fetchall(),
                "counted": COUNTED,
            },
        )

    def read() -> Shown:
        about = page.findings(*_OF_LEAKS)
        shown = page.ask(ask)
        return shown.beside(findings=about)

    return page.answer(read)
