"""One conversation's life on one time line: what the tables of both ends know, and what traces have kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from psycopg.rows import class_row

from pybroker.diagnosis.findings import findings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

_TOLD_BY_TRACE = """
select event_time as time, conversation_handle, is_initiator, service_name,
  event_subclass as event,
  pg_catalog.concat_ws(', ', event_class, message_type_name, 'message ' || message_sequence_number::text,
    message_size::text || ' bytes', status) as detail
from broker.trace t
where t.conversation_id = %(conversation)s
  and t.traced_by is not distinct from (
    select v.traced_by from broker.trace v
    where v.conversation_id = %(conversation)s
    group by v.traced_by
    order by pg_catalog.count(*) desc
    limit 1
  )
order by id
"""
_MANY = 1_000
_MANY_WAIT = """
select pg_catalog.count(*) > %(many)s, pg_catalog.min(t.enqueue_time) as since
from (
  select enqueue_time from broker.transmission_queue where conversation_handle = %(handle)s limit %(many)s + 1
) t
"""
# The view numbers the messages of a conversation: with the handle as a constant those of no other.
_WAITING = """
select t.enqueue_time as time, %(handle)s::uuid as conversation_handle, %(is_initiator)s as is_initiator,
  %(service)s as service_name,
  'waits in the transmission queue: ' || t.message_type_name as event,
  pg_catalog.concat_ws(
    ', ', 'message ' || t.message_sequence_number::text, nullif(t.transmission_status, '')
  ) as detail
from broker.transmission_queue t
where t.conversation_handle = %(handle)s
order by t.message_sequence_number
limit 100
"""
_SIDES = """
select e.conversation_handle, e.is_initiator, s.name as service_name, e.state_desc as state
from broker.conversation_endpoints e
join broker.services s on s.service_id = e.service_id
where e.conversation_id = %(conversation)s
order by e.is_initiator desc
"""
# A message's id begins as its conversation's.
_CONVERSATION = """
select conversation_id from broker.conversation_endpoints where conversation_handle = %(given)s
union all
select conversation_id from broker.conversation_endpoints where conversation_id between %(low)s and %(high)s
union all
select conversation_id from broker.trace
where conversation_handle = %(given)s or conversation_id between %(low)s and %(high)s
limit 1
"""
_BEGINNINGS = ("BEGIN DIALOG", "Dialog Created")


class Step(msgspec.Struct, frozen=True):
    """Something that happened to one side of the conversation, or is so now."""

    time: datetime
    database: str
    is_initiator: bool
    service_name: str
    event: str
    detail: str


class Journey(msgspec.Struct, frozen=True):
    """The steps in the order of time, and what nobody knows any more; without an id it is unknown."""

    conversation_id: UUID | None
    steps: tuple[Step, ...]
    gone: tuple[str, ...]


class _Event(msgspec.Struct):
    time: datetime
    conversation_handle: UUID
    is_initiator: bool
    service_name: str
    event: str
    detail: str


class _Side(msgspec.Struct):
    conversation_handle: UUID
    is_initiator: bool
    service_name: str
    state: str | None


def journey(connections: Sequence[psycopg.Connection[Any]], given: UUID) -> Journey:
    """Follow the conversation of this handle, conversation id or message id through each database."""
    conversation = next(
        (found for connection in connections if (found := _conversation(connection, given)) is not None), None
    )
    if conversation is None:
        names = " or ".join(f'"{connection.info.dbname}"' for connection in connections)
        return Journey(
            None,
            (),
            (
                f"Nothing of {given} is known in {names}: it has ended, or the role may not see it."
                " This keeps the next one's life, begun before it: select broker.start_trace()",
            ),
        )
    steps: list[Step] = []
    gone: list[str] = []
    for connection in connections:
        here, lost = _in_one_database(connection, conversation)
        steps += here
        gone += lost
    return Journey(conversation, tuple(sorted(steps, key=lambda step: step.time)), tuple(gone))


def _conversation(connection: psycopg.Connection[Any], given: UUID) -> UUID | None:
    first_half = given.int >> 64 << 64
    bounds = {"low": UUID(int=first_half), "high": UUID(int=first_half | (1 << 64) - 1)}
    row = connection.execute(_CONVERSATION, {"given": given, **bounds}).fetchone()
    return None if row is None else row[0]


def _in_one_database(connection: psycopg.Connection[Any], conversation: UUID) -> tuple[list[Step], list[str]]:
    database = connection.info.dbname
    which = {"conversation": conversation}
    with connection.cursor(row_factory=class_row(_Event)) as cursor:
        traced = cursor.execute(_TOLD_BY_TRACE, which).fetchall()
    with connection.cursor(row_factory=class_row(_Side)) as cursor:
        sides = cursor.execute(_SIDES, which).fetchall()
    waiting = [event for side in sides for event in _waiting(connection, side)]
    steps = [
        Step(one.time, database, one.is_initiator, one.service_name, one.event, one.detail)
        for one in traced + waiting
    ]
    for side in sides:
        steps += _now(connection, side)
    begun = {one.is_initiator for one in traced if one.event in _BEGINNINGS}
    known = {one.is_initiator: one.service_name for one in sides}
    known |= {one.is_initiator: one.service_name for one in traced}
    if not known:
        return steps, [
            f'Nothing of it is known in the database "{database}": it has ended there, it never came,'
            " or the role may not see it. This keeps the next one's life, begun before it:"
            " select broker.start_trace()"
        ]
    return steps, [
        f'Gone from the database "{database}": when the side of {service} began, and what was sent and'
        " received before a trace began. This keeps the next one's life, begun before it:"
        f" select broker.start_trace(service => '{service.replace(chr(39), chr(39) * 2)}')"
        for is_initiator, service in known.items()
        if is_initiator not in begun
    ]


def _waiting(connection: psycopg.Connection[Any], side: _Side) -> list[_Event]:
    """Return what waits in the transmission queue for a side: each message, or that there are very many."""
    about: dict[str, Any] = {
        "handle": side.conversation_handle,
        "is_initiator": side.is_initiator,
        "service": side.service_name,
        "many": _MANY,
    }
    found = connection.execute(_MANY_WAIT, about).fetchone()
    if found is not None and found[0]:
        event = f"more than {_MANY:,} messages wait in the transmission queue"
        return [_Event(found[1], side.conversation_handle, side.is_initiator, side.service_name, event, "")]
    with connection.cursor(row_factory=class_row(_Event)) as cursor:
        return cursor.execute(_WAITING, about).fetchall()


def _now(connection: psycopg.Connection[Any], side: _Side) -> list[Step]:
    """Say in which state a side is, and what its diagnosis finds."""
    now = datetime.now(UTC)
    facts = [(now, f"is {side.state}", f"handle {side.conversation_handle}")]
    facts += [
        (one.since or now, f"{one.level} {one.number}", one.problem)
        for one in findings_of(connection, side.conversation_handle)
    ]
    return [
        Step(time, connection.info.dbname, side.is_initiator, side.service_name, event, detail)
        for time, event, detail in facts
    ]
