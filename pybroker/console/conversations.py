"""A conversation: its sides, why it is where it is, and what both ends know on one time line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import class_row

from pybroker.console.answering import Page, Shown, missing, reason
from pybroker.console.trace_links import traces_of
from pybroker.diagnosis.findings import findings_of
from pybroker.diagnosis.journey import Journey, journey
from pybroker.errors import BrokerError

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.console.accounts import Target

_STEPS = 500

# One constant at a time: each is found by its index.
_CONVERSATION = "select conversation_id from broker.conversation_endpoints where conversation_handle = %s"
_SIDES = """
select e.conversation_handle, e.conversation_id, e.is_initiator, s.name as service, q.name as queue,
  c.name as contract, e.conversation_group_id, e.state, e.state_desc, e.far_service,
  e.far_broker_instance::text, e.principal_id::text as owner, e.far_principal_id::text as far_user,
  e.is_encrypted, e.priority, e.lifetime, e.dialog_timer
from broker.conversation_endpoints e
left join broker.services s on s.service_id = e.service_id
left join broker.service_queues q on q.object_id = s.service_queue_id
left join broker.service_contracts c on c.service_contract_id = e.service_contract_id
where e.conversation_id = %s
order by e.is_initiator desc
"""
# Matching stops at the first step that finds a route, and a mirror comes first: see sending/route_of.sql. The
# far side's broker is not told before it has answered: until then it may be any route that names the service.
_ROUTES = """
select m.name, m.address, m.service, m.instance
from (
  select
    r.route_id, r.name, r.address, r.mirror_address, r.remote_service_name as service,
    r.broker_instance::text as instance,
    pg_catalog.dense_rank() over (order by case
      when r.remote_service_name is null then 3
      when %(instance)s::text is null or r.broker_instance is not null then 1
      else 2
    end) as step
  from broker.routes r
  where r.scope = 'DATABASE' and (r.lifetime is null or r.lifetime > pg_catalog.now())
    and (
      r.remote_service_name is null
      or r.remote_service_name = %(service)s
      and (r.broker_instance is null or %(instance)s::text is null or r.broker_instance::text = %(instance)s)
    )
) m
where m.step = 1
order by m.mirror_address is null, m.address = 'TRANSPORT', m.route_id
limit 20
"""


@dataclass(frozen=True)
class Side:
    """One side of a conversation; a service or queue that the role may not see is None."""

    conversation_handle: UUID
    conversation_id: UUID
    is_initiator: bool
    service: str | None
    queue: str | None
    contract: str | None
    conversation_group_id: UUID
    state: str
    state_desc: str
    far_service: str
    far_broker_instance: str | None
    owner: str
    far_user: str | None
    is_encrypted: bool
    priority: int
    lifetime: datetime
    dialog_timer: datetime | None


@dataclass(frozen=True)
class RouteShown:
    """A route that a side's messages take, or one of several."""

    name: str
    address: str
    service: str | None
    instance: str | None


def conversation(request: Request) -> Response:
    """Show a conversation by the handle of one of its sides, or by its id."""
    page = Page(request)
    given: UUID = request.path_params["handle"]

    def ask(connection: psycopg.Connection[Any]) -> Shown:
        found = connection.execute(_CONVERSATION, (given,)).fetchone()
        conversation_id = given if found is None else found[0]
        sides = connection.cursor(row_factory=class_row(Side)).execute(_SIDES, (conversation_id,)).fetchall()
        known = journey([connection], conversation_id)
        if not sides and known.conversation_id is None:
            return missing(
                "This database knows no such conversation that this role may see. It may have ended."
            )
        is_here = len({side.is_initiator for side in sides}) > 1
        return Shown(
            "conversation.html",
            {
                "conversation_id": conversation_id,
                "sides": sides,
                "is_here": is_here,
                "findings": [(side, findings_of(connection, side.conversation_handle)) for side in sides],
                "routes": [] if is_here else [_routes(connection, side) for side in sides],
                "known": known,
                "traces": traces_of(connection, conversation_id),
            },
        )

    def read() -> Shown:
        shown = page.ask(ask)
        if "known" not in shown.values:
            return shown
        here: Target = shown.values["target"]
        others = [target for target in page.targets if target.number != here.number]
        lives = [shown.values["known"], *(_elsewhere(page, other, shown) for other in others)]
        steps = sorted((step for life in lives for step in life.steps), key=lambda step: step.time)
        return shown.beside(
            steps=steps[-_STEPS:],
            unshown=max(0, len(steps) - _STEPS),
            gone=[line for life in lives for line in life.gone],
        )

    return page.answer(read)


def _routes(connection: psycopg.Connection[Any], side: Side) -> list[RouteShown]:
    cursor = connection.cursor(row_factory=class_row(RouteShown))
    return cursor.execute(
        _ROUTES, {"service": side.far_service, "instance": side.far_broker_instance}
    ).fetchall()


def _elsewhere(page: Page, other: Target, shown: Shown) -> Journey:
    """Return what another database of the console knows of it; nothing, if it knows nothing."""
    conversation_id = shown.values["conversation_id"]
    try:
        known = page.account.ask(other.number, lambda connection: journey([connection], conversation_id))
    except (psycopg.Error, BrokerError) as error:
        return Journey(conversation_id, (), (f'The database "{other.name}" was not asked: {reason(error)}',))
    return known if known.conversation_id is not None else Journey(None, (), ())
