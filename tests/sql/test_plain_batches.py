"""A batch in which nothing is odd: what a sender remembers of its dialogs, how it is stored and acknowledged.

What a sender remembers of the wrong database would send one dialog's messages as another's. What is acknowledged
though it is not all there would be lost, or sent again as other messages.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pybroker.workers.transport import statements
from pybroker.workers.transport.outgoing import batches, sender
from pybroker.workers.transport.outgoing.known_dialogs import KnownDialogs, Room
from pybroker.workers.transport.protocol import arrays, wire
from tests.hop import Batch, Hop
from tests.patience import PATIENCE
from tests.shop import Session, in_background, until, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from tests.conftest import Database

LIMITS = 10, 1_000_000, 500_000
COUNTERS = "select n.endpoint_no, n.next_number from broker_private.sequence_counters n where n.kind = 'A' order by 1"
ROWS = "select t.endpoint_no, t.body from broker_private.transmission_messages t order by t.id"


@pytest.fixture
def hop(make_database: Callable[[str], Database]) -> Iterator[Hop]:
    """Two dialogs; the first message of each has been acknowledged, and another one waits."""
    hop = Hop(make_database)
    dialogs = [hop.dialog, hop.begin()]
    for dialog in dialogs:
        hop.near.send(dialog, "order", b"first")
        batch = hop.take()
        assert batch is not None
        number, fault = hop.deliver(batch)
        assert fault is None
        hop.acknowledge(batch, number)
    for dialog in dialogs:
        hop.near.send(dialog, "order", b"second")
    hop.near.rows(
        "select broker_private.note_dialog_security(array_agg(e.endpoint_no), array_agg('N'::text),"
        " array_agg(null::bytea)) from broker_private.endpoints e"
    )
    yield hop
    hop.close()


def conversations(hop: Hop) -> list[UUID]:
    batch = hop.take()
    assert batch is not None
    found: list[UUID] = batch.columns["conversation_ids"]
    return found


def acknowledged(hop: Hop, next_numbers: dict[int, int] | None = None, meanwhile: str = "") -> bool:
    """Take both dialogs' messages and acknowledge them as a sender does; return whether the short form did it.

    `next_numbers`: what the far broker says by place, where that is not all.
    """

    async def settle() -> bool:
        async with await psycopg.AsyncConnection.connect(hop.near.connection.info.dsn) as connection:
            destination = hop.near.value("select max(destination_no) from broker_private.destinations")
            found = await hop.known.take(connection, destination, (0, 1), LIMITS)
            assert found is not None
            taken = found.taken
            assert taken is not None
            await connection.commit()
            if meanwhile:
                hop.near.rows(meanwhile)
            ends = batches.ends_of(taken)
            numbers = [
                (next_numbers or {}).get(place, end.next_number) for place, end in enumerate(ends.values())
            ]
            nothing = arrays.from_texts([None] * len(ends))
            ack = wire.Ack(
                number=1,
                broker_instance=hop.far_broker.bytes,
                next_numbers=arrays.from_integers(numbers, arrays.BIGINT),
                fault_codes=arrays.from_integers([None] * len(ends), arrays.INTEGER),
                fault_texts=nothing,
                fault_is_final=arrays.from_elements([b"\0"] * len(ends), arrays.BOOLEAN),
            )
            rows, _, _ = batches.outcome(taken, ends, ack)
            is_plain = batches.is_plain(taken, rows, ack)
            before = await _state(connection)
            if is_plain:
                moved = [number for _, number, _ in rows], [row for _, _, row in rows]
                removed = await statements.acknowledge_plain(connection, taken, *moved)
                if removed is not None:
                    return True
                assert await _state(connection) == before, "it has left what it can't do as it was"
            await sender.acknowledge(connection, taken, rows, ack, is_plain=False)
            return False

    return asyncio.run(settle())


async def _state(connection: psycopg.AsyncConnection[Any]) -> list[list[Any]]:
    return [await (await connection.execute(query)).fetchall() for query in (COUNTERS, ROWS)]


def test_a_whole_batch_of_known_dialogs_is_acknowledged_at_once(hop: Hop) -> None:
    assert acknowledged(hop)
    assert [number for _, number in hop.near.rows(COUNTERS)] == [2, 2]
    assert hop.near.rows(ROWS) == []


def test_a_part_of_a_batch_is_acknowledged_by_the_general_form(hop: Hop) -> None:
    assert not acknowledged(hop, {1: 1})
    assert [number for _, number in hop.near.rows(COUNTERS)] == [2, 1]
    assert len(hop.near.rows(ROWS)) == 1


def test_what_was_dropped_meanwhile_is_not_counted_as_acknowledged(hop: Hop) -> None:
    dropped = f"select broker.end_conversation('{hop.dialog}', 1, 'no more')"
    assert not acknowledged(hop, meanwhile=dropped)
    assert [number for _, number in hop.near.rows(COUNTERS)] == [1, 2]


def test_a_counter_that_somebody_has_moved_is_left_where_it_is(hop: Hop) -> None:
    """And so is the other one, which was where it was expected."""
    moved = (
        "update broker_private.sequence_counters n set next_number = 5"
        " where n.kind = 'A' and n.endpoint_no = (select max(x.endpoint_no) from broker_private.endpoints x)"
        " returning 1"
    )
    assert not acknowledged(hop, meanwhile=moved)
    assert hop.near.rows(COUNTERS)[0][1] == 2


def test_why_messages_waited_is_forgotten_once_they_are_acknowledged(hop: Hop) -> None:
    hop.near.rows(
        "select broker_private.set_dialog_statuses(array_agg(e.endpoint_no), array_agg('why'::text))"
        " from broker_private.endpoints e"
    )
    assert acknowledged(hop)
    assert hop.near.value("select count(*) from broker_private.transmission_status") == 0


ARRIVED = "select n.endpoint_no, n.next_number, n.sent_at from broker_private.sequence_counters n where n.kind = 'I' order by 1"
STORED = "select m.endpoint_no, m.sequence_number, m.body from broker_private.messages m order by 1, 2"
_ARGUMENTS = (
    "conversation_ids", "from_initiator", "to_brokers", "type_names", "dialog_index", "type_index",
    "sequence_numbers", "bodies",
)  # fmt: skip


def taken(hop: Hop) -> Batch:
    batch = hop.take()
    assert batch is not None
    return batch


def arrive(site: Session, batch: Batch, hop: Hop, **changes: object) -> list[int] | None:
    """Bring a batch; return the numbers that are expected next, or None if it is the general form's."""
    columns = {name: batch.columns[name] for name in _ARGUMENTS}
    dialogs = len(batch.columns["conversation_ids"])
    told: dict[str, Any] = {
        "from_broker": hop.near_broker,
        **columns,
        "security_kinds": ["N"] * dialogs,
        "far_users": [None] * dialogs,
        "session_keys": [None] * dialogs,
        "acknowledged": batch.acknowledged,
        "sent_at": batch.sent_at,
        **changes,
    }
    numbers: list[int] | None = site.value(
        "select broker_private.deliver_plain(%s, %s, %s, %s, %s, %s, %s, %s, %s::bytea[], %s, %s::text[],"
        " %s::bytea[], %s, %s)",
        *told.values(),
    )
    return numbers


def part(batch: Batch, place: int, number: int | None = None, body: bytes | None = None) -> Batch:
    """Return one message of a batch of one for each dialog, or another one of its dialog."""
    lone = {"kinds": "M", "type_names": batch.columns["type_names"], "type_index": [1], "dialog_index": [1]}
    # In their order.
    columns = {name: lone.get(name) or [column[place]] for name, column in batch.columns.items()}
    if number is not None:
        columns |= {"sequence_numbers": [number], "bodies": [body]}
    return dataclasses.replace(
        batch, columns=columns, acknowledged=[batch.acknowledged[place]], sent_at=[batch.sent_at[place]]
    )


def test_a_batch_of_known_dialogs_is_stored_at_once_and_only_once(hop: Hop) -> None:
    batch = taken(hop)
    assert arrive(hop.far, batch, hop) == [2, 2]
    before = hop.far.rows(ARRIVED), hop.far.rows(STORED)
    assert [at for _, _, at in before[0]] == batch.sent_at
    assert arrive(hop.far, batch, hop) is None, "it is known already"
    assert (hop.far.rows(ARRIVED), hop.far.rows(STORED)) == before


def _ended_there(hop: Hop) -> None:
    hop.far.rows(
        "insert into broker_private.far_events (endpoint_no, event)"
        " select max(e.endpoint_no), 'E' from broker_private.endpoints e returning 1"
    )


ODD: dict[str, Callable[[Hop, Batch], object]] = {
    "a queue is off": lambda hop, _: hop.far.rows("select broker.alter_queue('warehouse', status => false)"),
    "the far side of one has ended": lambda hop, _: _ended_there(hop),
    "this side of one has ended": lambda hop, _: hop.far.rows(
        "select broker.end_conversation(max(e.conversation_handle::text)::uuid) from broker.conversation_endpoints e"
    ),
    "the message of one is here": lambda hop, batch: hop.deliver(part(batch, 1)),
    "one after it came before it": lambda hop, batch: hop.deliver(part(batch, 1, 2, b"early")),
    "the broker is off": lambda hop, _: hop.far.rows("select broker.alter_broker('DISABLE_BROKER')"),
}


@pytest.mark.parametrize("odd", ODD)
def test_where_one_dialog_is_odd_nothing_of_the_batch_is_stored_by_the_short_form(hop: Hop, odd: str) -> None:
    """And what is remembered of the others is as it was, with the time at which the last message was sent."""
    batch = taken(hop)
    ODD[odd](hop, batch)
    before = hop.far.rows(ARRIVED), hop.far.rows(STORED)
    assert arrive(hop.far, batch, hop) is None
    assert (hop.far.rows(ARRIVED), hop.far.rows(STORED)) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"from_initiator": [True, False]},
        {"to_brokers": [None, "00000000-0000-0000-0000-000000000007"]},
        {"type_names": ["ack"]},
        {"type_names": ["unknown"]},
        {"type_names": [None]},
        {"type_index": [1, 2]},
        {"type_index": [0, 1]},
        {"dialog_index": [1, 1]},
        {"dialog_index": [0, 1]},
        {"dialog_index": [1, 3]},
        {"sequence_numbers": [1, 2]},
        {"sequence_numbers": [1, None]},
        {"security_kinds": ["N", "A"]},
        {"security_kinds": ["N", None]},
        {"acknowledged": [1, 2]},
        {"bodies": [b"one"]},
    ],
    ids=str,
)
def test_what_is_odd_in_a_batch_is_not_stored_by_the_short_form(hop: Hop, changes: dict[str, object]) -> None:
    before = hop.far.rows(ARRIVED), hop.far.rows(STORED)
    assert arrive(hop.far, taken(hop), hop, **changes) is None
    assert (hop.far.rows(ARRIVED), hop.far.rows(STORED)) == before


def test_a_batch_sees_what_came_too_early_while_it_waited_for_a_counter(hop: Hop) -> None:
    """Else nobody would give it out before it is sent again."""
    batch = taken(hop)
    with (
        psycopg.connect(hop.far.connection.info.dsn) as early,
        psycopg.connect(hop.far.connection.info.dsn, autocommit=True) as late,
    ):
        hop_of_early, hop_of_late = Session(early), Session(late)
        far, hop.far = hop.far, hop_of_early
        hop.deliver(part(batch, 1, 2, b"early"))
        hop.far = far
        stored = in_background(lambda: arrive(hop_of_late, batch, hop))
        until(lambda: stored.done() or waits(far, hop_of_late, "Lock"))
        assert not stored.done(), "it waits for the counter that the other one holds"
        early.commit()
        assert stored.result(PATIENCE) is None
    hop.deliver(batch)
    stored_after_all = [(number, bytes(body)) for _, number, body in hop.far.rows(STORED) if number]
    assert sorted(stored_after_all) == [(1, b"second"), (1, b"second"), (2, b"early")]


def test_what_is_put_back_in_a_savepoint_fails_rather_than_to_count_as_stored(hop: Hop) -> None:
    batch = taken(hop)
    _ended_there(hop)
    with psycopg.connect(hop.far.connection.info.dsn) as connection:
        connection.execute("savepoint one")
        with pytest.raises(psycopg.Error, match="behind a savepoint"):
            arrive(Session(connection), batch, hop)
        connection.rollback()


RENAMED = (
    "update broker_private.endpoints e set conversation_id = gen_random_uuid() returning e.conversation_id"
)


def test_a_sender_that_remembers_takes_what_the_database_says(hop: Hop) -> None:
    assert conversations(hop) == conversations(hop)


@pytest.mark.parametrize(
    "restored",
    ["vacuum full broker_private.endpoints", "update broker_private.broker_instance b set database_oid = 1"],
    ids=["tables were read back", "another database"],
)
def test_what_is_remembered_is_not_believed_of_a_database_that_was_restored(hop: Hop, restored: str) -> None:
    """Its numbers may stand for other dialogs."""
    before = conversations(hop)
    hop.near.connection.execute(RENAMED.encode())
    assert conversations(hop) == before, "what never changes is not asked for again"
    hop.near.connection.execute(restored.encode())
    if "database_oid" in restored:
        # A copy takes nothing until somebody enables its broker.
        assert hop.take() is None
        return
    after = hop.near.rows("select e.conversation_id from broker_private.endpoints e order by e.endpoint_no")
    assert conversations(hop) == [conversation for (conversation,) in after]


def test_what_is_remembered_of_all_destinations_together_has_one_bound(hop: Hop) -> None:
    """Each destination remembers its two dialogs and their type; there is room for those of two destinations."""
    room = Room(7)
    destinations = [KnownDialogs(room) for _ in range(4)]
    expected = conversations(hop)
    for known in [*destinations, *reversed(destinations)]:
        hop.known = known
        assert conversations(hop) == expected
        assert room.remembered <= 7
    assert room.remembered == 6
    small = Room(2)
    hop.known = KnownDialogs(small)
    for _ in range(2):
        assert conversations(hop) == expected, "more than there is room for goes all the same"
        assert small.remembered == 0
    del destinations
    known = hop.known = KnownDialogs(room)
    assert conversations(hop) == expected
    assert room.remembered == 3, "what is gone takes no room"
