"""Who talks to whom: databases, workers, services, routes, and how long certificates hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import class_row

from pybroker.console.answering import Page, Shown, overview_of, reason
from pybroker.console.drawing import Box, Link, Row, drawn
from pybroker.errors import BrokerError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.console.accounts import Overview, Target

LOOKED_INTO = 1_000
_SERVICES, _TALKS = 40, 100

_SERVICE = """
select s.name as service, q.name as queue
from broker.services s
left join broker.service_queues q on q.object_id = s.service_queue_id
order by s.name
limit %s
"""
# The address is that of the route that names the service; the general route stands for what none names.
# Materialized, as a join would look into the conversations once for each service.
_TALK = """
with looked_into as materialized (
  select v.service_id, v.far_service, v.is_initiator from broker.conversation_endpoints v limit %s
)
select t.service, t.far_service, t.conversations, (
  select r.address from broker.routes r
  where r.scope = 'DATABASE' and (r.remote_service_name = t.far_service or r.remote_service_name is null)
    and (r.lifetime is null or r.lifetime > pg_catalog.now())
  order by r.remote_service_name nulls last, r.route_id
  limit 1
) as address
from (
  select s.name as service, e.far_service, pg_catalog.count(*) as conversations
  from looked_into e
  join broker.services s on s.service_id = e.service_id
  where e.is_initiator
  group by s.name, e.far_service
  order by pg_catalog.count(*) desc, s.name, e.far_service
  limit %s
) t
"""
_CONNECTIONS = """
select c.address, c.state_desc as state, c.is_accept, c.principal_name as peer, c.worker_id::text as worker
from broker.dm_broker_connections c
order by c.worker_id, c.address
limit 100
"""


@dataclass(frozen=True)
class ServiceShown:
    """A service and its queue."""

    service: str
    queue: str | None


@dataclass(frozen=True)
class Talk:
    """Conversations that a service began with another; address of the route, None if the role sees none."""

    service: str
    far_service: str
    conversations: int
    address: str | None


@dataclass(frozen=True)
class Connection:
    """A connection between workers."""

    address: str | None
    state: str
    is_accept: bool
    peer: str | None
    worker: str


@dataclass(frozen=True)
class Site:
    """A database in the picture; without an overview, `why` says so."""

    target: Target
    overview: Overview | None
    why: str
    services: tuple[ServiceShown, ...] = ()
    talks: tuple[Talk, ...] = ()
    connections: tuple[Connection, ...] = ()

    @property
    def waiting(self) -> dict[str, int]:
        """Messages that wait for a reason, by far service."""
        waits: dict[str, int] = {}
        for one in () if self.overview is None else self.overview.status.waiting:
            if one.status:
                waits[one.service] = waits.get(one.service, 0) + one.messages
        return waits


def topology(request: Request) -> Response:
    """Draw the databases of the console and what they talk to."""
    page = Page(request)

    def read() -> Shown:
        sites = [_site(page, target) for target in page.targets]
        return Shown(
            "topology.html", {"sites": sites, "picture": _picture(sites), "looked_into": LOOKED_INTO}
        )

    return page.answer(read)


def _site(page: Page, target: Target) -> Site:
    seen, why = overview_of(page.account, target)
    if seen is None:
        return Site(target, None, why)

    def ask(connection: psycopg.Connection[Any]) -> Site:
        return Site(
            target,
            seen,
            "",
            tuple(connection.cursor(row_factory=class_row(ServiceShown)).execute(_SERVICE, (_SERVICES,))),
            tuple(connection.cursor(row_factory=class_row(Talk)).execute(_TALK, (LOOKED_INTO, _TALKS))),
            tuple(connection.cursor(row_factory=class_row(Connection)).execute(_CONNECTIONS)),
        )

    try:
        return page.account.ask(target.number, ask)
    except (psycopg.Error, BrokerError) as error:
        return Site(target, None, reason(error))


def _picture(sites: list[Site]) -> Any:
    """Lay the picture out: databases left, what is in none of them right."""
    near = [_database(site) for site in sites]
    known = {service.service for site in sites for service in site.services}
    outside: dict[str, list[str]] = {}
    for site in sites:
        for talk in site.talks:
            if talk.far_service not in known:
                place = outside.setdefault(talk.address or "no route", [])
                if talk.far_service not in place:
                    place.append(talk.far_service)
    far = [
        Box(address, "", tuple(Row(name, name, "") for name in names)) for address, names in outside.items()
    ]
    links = [
        Link(
            (site.target.number, talk.service),
            _far_end(sites, site, talk, known),
            f"{talk.conversations:,}{'+' if talk.conversations >= LOOKED_INTO else ''}",
            bool(site.waiting.get(talk.far_service)),
        )
        for site in sites
        for talk in site.talks
    ]
    return drawn(near, far, links)


def _database(site: Site) -> Box:
    if site.overview is None:
        return Box(site.target.name, "no answer", ())
    status = site.overview.status
    depths = {queue.queue: queue for queue in status.queues}
    rows = []
    for service in site.services:
        depth = depths.get(service.queue or "")
        ready = "" if depth is None else f"{'about ' if depth.is_estimate else ''}{depth.ready:,} ready"
        rows.append(Row((site.target.number, service.service), service.service, ready))
    facts = ["worker" if status.has_worker else "no worker"]
    if site.overview.has_rates:
        facts.append(f"in {status.enqueued_per_second:.1f}/s, out {status.dequeued_per_second:.1f}/s")
    return Box(site.target.name, ", ".join(facts), tuple(rows))


def _far_end(sites: list[Site], site: Site, talk: Talk, known: set[str]) -> Any:
    """Name the row at the far end: a service of the same database, of another one here, or one outside."""
    if talk.far_service not in known:
        return talk.far_service
    others = sorted(sites, key=lambda one: (one is not site, one.target.number))
    return next(
        (one.target.number, talk.far_service)
        for one in others
        if any(service.service == talk.far_service for service in one.services)
    )
