"""Under an old snapshot a RECEIVE begins at floors: they rise past what was received, and never past a message that is still to come."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.patience import PATIENCE
from tests.shop import Session, Shop, in_background, until, waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

EAGER = {
    "pick_above_floors": [("random() < 0.1", "true"), ("walked > 200", "true")],
    "messages_above_floors": [("walked > 200", "true")],
    "first_message": [("walked > 200", "true")],
    "raise_floors": [("saved_dead <= 200", "false"), ("is_deep := ", "is_deep := random() < 0.5 or ")],
}
NEWEST_FLOOR = (
    "select max(u.floor) from broker_private.queues q, unnest(broker_private.floors_of(q.queue_id)) as u (floor)"
    " where q.name = %s"
)


def raise_at_every_look(session: Session) -> None:
    """Let every RECEIVE of every queue use floors, and raise them, though nothing is slow here."""
    for name, changes in EAGER.items():
        definition = session.value(
            "select pg_get_functiondef(p.oid) from pg_proc p"
            " where p.proname = %s and p.pronamespace = 'broker_private'::regnamespace",
            name,
        )
        for lazy, eager in changes:
            assert lazy in definition, name
            definition = definition.replace(lazy, eager)
        session.rows(definition)
    session.rows("alter table broker_private.queues alter has_floors set default true")
    session.rows("update broker_private.queues set has_floors = true")


@pytest.fixture
def shop(shop: Shop) -> Shop:
    raise_at_every_look(shop.psql)
    shop.psql.rows("set lock_timeout = '5 s'")
    return shop


def raise_above(session: Session, queue: str = "warehouse") -> None:
    """Send, receive and look until a floor is above all that was sent until now, as far as that may be."""
    dialog = session.dialog()
    for _ in range(3):
        session.send(dialog, "order", b"-")
        assert session.bodies(queue, conversation_handle=session.handle_of(dialog)) == [b"-"]
        session.rows(
            "select broker_private.first_message(queue_id) from broker_private.queues where name = %s", queue
        )


def test_the_first_message_of_a_database_is_received_by_who_waits_for_it(shop: Shop) -> None:
    (waiter,) = shop.sessions(1)
    assert [waiter.bodies() for _ in range(3)] == [[], [], []]
    shop.psql.send(shop.psql.dialog(), "order", b"first")
    assert waiter.bodies() == [b"first"]


def test_a_message_that_is_committed_late_is_received_all_the_same(shop: Shop) -> None:
    psql = shop.psql
    late = psql.dialog()
    psql.send(late, "order", b"0")
    (sender,) = shop.sessions(1)
    sender.send(late, "order", b"1")
    assert psql.bodies() == [b"0"]
    raise_above(psql)
    sender.connection.commit()
    assert psql.bodies() == [b"1"]
    raise_above(psql)
    last = psql.value("select last_value from broker_private.queuing_order")
    assert psql.value(NEWEST_FLOOR, "warehouse") >= last - 1, "and then the floors rise"


RAISE = "select broker_private.raise_floors(queue_id, 3000, null) from broker_private.queues where name = 'warehouse'"
# Where a raiser waits in the test below, if its session says so.
PAUSES = {
    "after its number": "nextval('broker_private.floor_numbers');",
    "after its look": "pg_backend_pid();",
}


def test_a_message_is_received_though_a_raiser_met_floors_that_are_younger_than_its_look(shop: Shop) -> None:
    """What tests/specs/floors.tla found: all senders that such floors remember seem to have ended."""
    psql = shop.psql
    definition = psql.value("select pg_get_functiondef('broker_private.raise_floors'::regproc)")
    for number, (place, anchor) in enumerate(PAUSES.items()):
        assert anchor in definition, place
        definition = definition.replace(
            anchor,
            f"{anchor} if current_setting('test.pause', true) = '{place}'"
            f" then perform pg_advisory_xact_lock_shared({number}); end if;",
        )
    psql.rows(definition)
    dialog = psql.dialog()
    psql.send(dialog, "order", b"1")
    assert psql.bodies() == [b"1"]
    early, late = shop.sessions(2)
    early.send(psql.dialog(), "order", b"rolled back")
    raising = []
    for number, place in enumerate(PAUSES):
        psql.rows("select pg_advisory_lock(%s)", number)
        raiser = shop.session()
        raiser.rows("select set_config('test.pause', %s, false)", place)
        raising.append(in_background(partial(raiser.rows, RAISE)))
        until(partial(waits, psql, raiser, "Lock"))
    early.connection.rollback()
    late.send(dialog, "order", b"2")
    for number, work in enumerate(raising):
        psql.rows("select pg_advisory_unlock(%s)", number)
        work.result(PATIENCE)
    late.connection.commit()
    assert psql.bodies() == [b"2"]


def test_what_a_rollback_brings_back_is_received_again(shop: Shop) -> None:
    psql = shop.psql
    first, second = psql.dialog(), psql.dialog()
    for dialog in first, second:
        psql.send(dialog, "order", b"1")
        psql.send(dialog, "order", b"2")
    reader, raiser = shop.sessions(2)
    assert reader.bodies() == [b"1", b"2"]
    assert raiser.bodies(top=1) == [b"1"]
    raise_above(raiser)
    raise_above(psql)
    reader.connection.rollback()
    assert psql.bodies() == [b"1", b"2"]
    raiser.connection.rollback()
    assert psql.bodies() == [b"1", b"2"]


@pytest.mark.parametrize("raiser_ends_first", [True, False])
@pytest.mark.parametrize("raiser_begins_first", [True, False])
def test_old_messages_that_move_into_a_queue_are_received_there_whoever_raises_floors_meanwhile(
    shop: Shop, *, raiser_begins_first: bool, raiser_ends_first: bool
) -> None:
    psql = shop.psql
    psql.rows(
        "select broker.create_queue('annex'), broker.create_service('//annex', 'annex', '{DEFAULT,ordering}')"
    )
    psql.rows(
        "update broker_private.queues set poison_action = 'QUARANTINE', holds_quarantine = true where name = 'annex'"
    )
    moved, annexed = (
        psql.dialog(),
        psql.value("select broker.begin_dialog('//shop', '//annex', contract => 'ordering')"),
    )
    psql.send(moved, "order", b"moved")
    psql.send(annexed, "order", b"redriven")
    quarantined = psql.handle_of(annexed)
    psql.rows(
        "select broker_private.quarantine_conversation(endpoint_no, 5, null, null, null) from broker_private.endpoints"
        " where conversation_handle = %s",
        quarantined,
    )
    mover, raiser = shop.sessions(2)

    def begin_to_raise() -> None:
        other = raiser.value("select broker.begin_dialog('//shop', '//annex', contract => 'ordering')")
        for _ in range(3):
            raiser.send(other, "order", b"-")
            assert raiser.bodies("annex", conversation_handle=raiser.handle_of(other)) == [b"-"]

    if raiser_begins_first:
        begin_to_raise()
    mover.rows("select broker.redrive(%s)", quarantined)
    mover.rows("select broker.alter_service('//warehouse', queue => 'annex')")
    if not raiser_begins_first:
        begin_to_raise()
    for session in (raiser, mover) if raiser_ends_first else (mover, raiser):
        session.connection.commit()
    assert sorted(psql.bodies("annex") + psql.bodies("annex")) == [b"moved", b"redriven"]


def test_the_sweep_leaves_the_reset_that_an_old_message_needs(shop: Shop) -> None:
    """Else the floor before it would count again, and hide the message for ever."""
    psql = shop.psql
    psql.rows(
        "select broker.create_queue('annex'), broker.create_service('//annex', 'annex', '{DEFAULT,ordering}')"
    )
    moved = psql.dialog()
    psql.send(moved, "order", b"moved")
    other = psql.value("select broker.begin_dialog('//shop', '//annex', contract => 'ordering')")
    for _ in range(3):
        psql.send(other, "order", b"-")
        assert psql.bodies("annex") == [b"-"]
    psql.rows("select broker.alter_service('//warehouse', queue => 'annex')")
    psql.rows("select broker_private.sweep()")
    assert psql.bodies("annex") == [b"moved"]


def test_a_late_message_that_a_move_brings_into_a_queue_is_received_below_its_floors(shop: Shop) -> None:
    """Else nobody would find it: it was sent before all that the floors have been raised past."""
    psql = shop.psql
    psql.rows(
        "select broker.create_queue('annex'), broker.create_service('//annex', 'annex', '{DEFAULT,ordering}')"
    )
    move = (
        "select broker.move_conversation(%s, conversation_group_id) from broker.conversation_endpoints"
        " where conversation_handle = %s"
    )
    moved, second, third = dialogs = [psql.dialog() for _ in range(3)]
    for dialog in dialogs:
        psql.send(dialog, "order", b"first")
        assert psql.bodies() == [b"first"]
    (slow,) = shop.sessions(1)
    slow.send(moved, "order", b"late")
    psql.rows(move, psql.handle_of(moved), psql.handle_of(second))
    psql.rows("select broker.alter_service('//warehouse', queue => 'annex')")
    slow.connection.commit()
    other = psql.value("select broker.begin_dialog('//shop', '//annex', contract => 'ordering')")
    for _ in range(3):
        psql.send(other, "order", b"-")
        assert psql.bodies("annex", conversation_handle=psql.handle_of(other)) == [b"-"]
        psql.rows(
            "select broker_private.first_message(queue_id) from broker_private.queues where name = 'annex'"
        )
    psql.rows(move, psql.handle_of(moved), psql.handle_of(third))
    assert psql.bodies("annex") == [b"late"]


def keep_at_it(session: Session, work: Callable[[int], object], rounds: int) -> None:
    """Run so many transactions; one in six rolls back, and so does one that loses a deadlock."""
    chance = random.Random(session.connection.info.backend_pid)
    for turn in range(rounds):
        try:
            work(turn)
            if chance.random() < 1 / 6:
                session.connection.rollback()
            else:
                session.connection.commit()
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            session.connection.rollback()


def test_nothing_is_lost_doubled_or_overtaken_while_floors_rise_and_services_move(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue('annex')")
    psql.rows("update broker_private.queues set is_poison_message_handling_enabled = false")
    psql.rows("create table done (place bigint generated always as identity, dialog text, number bigint)")
    psql.rows("create table sent (dialog uuid, number bigint)")
    handles = [psql.dialog() for _ in range(6)]
    for handle in handles:
        psql.send(handle, "order", f"{handle} 0".encode())
        psql.rows("insert into sent values (%s, 0)", handle)

    def send(session: Session, mine: list[UUID]) -> Callable[[int], None]:
        def one_transaction(turn: int) -> None:
            for handle in random.Random(turn).sample(mine, 2):
                session.rows(
                    "with n as (insert into sent select %s, max(number) + 1 from sent where dialog = %s returning number)"
                    " select broker.send(%s, 'order', convert_to(%s || ' ' || number, 'UTF8')) from n",
                    handle, handle, handle, str(handle),
                )  # fmt: skip

        return one_transaction

    def receive(session: Session) -> Callable[[int], None]:
        return lambda turn: session.rows(
            "insert into done (dialog, number)"
            " select split_part(t, ' ', 1), split_part(t, ' ', 2)::bigint"
            " from broker.receive(%s, top => %s) r, convert_from(r.message_body, 'UTF8') t",
            ("warehouse", "annex")[turn // 3 % 2],
            1 + turn % 3,
        )

    def move(session: Session) -> Callable[[int], None]:
        return lambda _: session.rows(
            "select broker.alter_service(s.name, queue => q.name)"
            " from broker_private.services s join broker_private.queues q on q.queue_id <> s.queue_id"
            " where s.name = '//warehouse' and q.name in ('warehouse', 'annex')"
        )

    senders, readers, mover = shop.sessions(2), shop.sessions(3), shop.sessions(1)[0]
    for session in (*senders, *readers, mover):
        session.rows("set lock_timeout = '2 s'")
        session.connection.commit()
    works = [
        *((session, send(session, handles[place::2]), 60) for place, session in enumerate(senders)),
        *((session, receive(session), 120) for session in readers),
        (mover, move(mover), 12),
    ]
    running = [in_background(partial(keep_at_it, *work)) for work in works]
    for work in running:
        work.result(200)
    # What was sent to the queue where the service was is brought home.
    psql.rows("select broker_private.settle_moved()")
    for turn in range(600):
        receive(psql)(turn)
    assert psql.rows(
        "select dialog, array_agg(number order by place) from done group by 1 order by 1"
    ) == psql.rows("select dialog::text, array_agg(number order by number) from sent group by 1 order by 1")
