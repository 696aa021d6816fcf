"""SEND believes what it noted of a dialog, its send plan, only while that is true; and nobody waits for it to learn."""

from __future__ import annotations

import threading
import uuid
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.patience import PATIENCE
from tests.shop import Session, Shop, in_background, until, waits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.conftest import Database

WAITING = "select count(*) from broker.transmission_queue"
PLACE = "select g.ctid::text from broker_private.groups g join broker_private.endpoints e using (group_no) where is_initiator"
COPIES = "select count(*) from broker_private.retained_messages where status = 3"
SENT = "sent"

# A change of a definition, and what a SEND of b"x" by a clerk who had RECEIVE then meets: a refusal, or a
# table where its message or a copy of it is.
CHANGES = {
    "far queue off": ("select broker.alter_queue('warehouse', status => false)", WAITING),
    "far queue off by poison": (
        "select broker_private.disable_poisoned_queue(queue_id) from broker_private.queues where name = 'warehouse'",
        WAITING,
    ),
    "retention": ("select broker.alter_queue('shop', retention => true)", COPIES),
    "validation": ("select broker.alter_message_type('order', 'EMPTY')", "S8430"),
    "contract": (
        "select broker.alter_service('//warehouse', drop_contracts => '{{ordering}}'), broker.drop_contract('ordering')",
        "S8429",
    ),
    "revoke": ("select broker.revoke('RECEIVE', 'QUEUE', 'shop', '{clerk}')", "S0229"),
    "broker off": ("select broker.alter_broker('DISABLE_BROKER')", WAITING),
    "conversations in error": ("select broker.alter_broker('ERROR_BROKER_CONVERSATIONS')", "S8429"),
    "service on a queue that is off": (
        "select broker.create_queue('other', status => false), broker.alter_service('//warehouse', 'other')",
        WAITING,
    ),
}


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    shop = Shop(database)
    shop.psql.rows("set lock_timeout = '5 s'")
    yield shop
    shop.close()


def new_clerk(shop: Shop) -> str:
    name = f"clerk_{uuid.uuid4().hex}"
    shop.psql.rows(f'create role "{name}" login')
    shop.psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s)", name)
    return name


def outcome(session: Session, dialog: UUID) -> str:
    """Send, and return the SQLSTATE of a refusal, or that there was none."""
    try:
        session.send(dialog, "order", b"x")
    except psycopg.Error as error:
        return str(error.sqlstate)
    return SENT


def assert_seen(shop: Shop, found: str, expected: str, messages: int = 1) -> None:
    if expected.startswith("select"):
        assert (found, shop.psql.value(expected)) == (SENT, messages)
    else:
        assert found == expected


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("place", ["alone", "beside another dialog"])
def test_a_send_that_waited_for_its_group_sees_what_changed_meanwhile(
    shop: Shop, name: str, place: str
) -> None:
    change, expected = CHANGES[name]
    clerk = new_clerk(shop)
    psql, waiting = shop.psql, shop.session(user=clerk)
    first = psql.dialog()
    psql.send(first)
    dialog = first if place == "alone" else psql.dialog(related_conversation=first)
    for _ in range(2):
        waiting.send(dialog)
    (holding,) = shop.sessions(1)
    holding.send(first)
    sending = in_background(lambda: outcome(waiting, dialog))
    until(lambda: waits(psql, waiting, "Lock"))
    # Nor does it wait for who holds the group.
    psql.rows(change.format(clerk=clerk))
    holding.connection.commit()
    assert_seen(shop, sending.result(PATIENCE), expected)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("place", ["alone", "beside another dialog"])
def test_a_plan_that_was_made_before_a_change_was_committed_is_never_believed(
    shop: Shop, name: str, place: str
) -> None:
    change, expected = CHANGES[name]
    clerk = new_clerk(shop)
    psql, sender = shop.psql, shop.session(user=clerk)
    first = psql.dialog()
    if place != "alone":
        psql.send(first)
    dialog = first if place == "alone" else psql.dialog(related_conversation=first)
    sender.send(dialog)
    # Makes each plan worthless, so that the next SEND makes it anew.
    psql.rows("select broker.alter_queue('warehouse', retention => true)")
    (changing,) = shop.sessions(1)
    changing.rows(change.format(clerk=clerk))
    # A transaction that began later ends: what is over is no longer all that has a smaller number.
    psql.rows("select pg_current_xact_id()")
    for _ in range(3):
        sender.send(dialog)
    changing.connection.commit()
    assert_seen(shop, outcome(sender, dialog), expected)


@pytest.mark.parametrize("name", ["retention", "validation", "revoke", "end"])
def test_a_session_that_fires_no_triggers_changes_what_others_may_send(shop: Shop, name: str) -> None:
    """Who restores or copies by hand sets that, and a right that is taken in such a session is gone all the same."""
    clerk = new_clerk(shop)
    sender = shop.session(user=clerk)
    dialog = shop.psql.dialog()
    for _ in range(2):
        sender.send(dialog)
    ended = (f"select broker.end_conversation('{dialog}')", "S8426")
    change, expected = {**CHANGES, "end": ended}[name]
    shop.psql.rows("set session_replication_role = replica")
    shop.psql.rows(change.format(clerk=clerk))
    assert_seen(shop, outcome(sender, dialog), expected)
    assert (
        shop.psql.rows(
            "select tgrelid::regclass from pg_trigger join pg_class c on c.oid = tgrelid where not tgisinternal"
            " and relnamespace = 'broker_private'::regnamespace and tgenabled <> 'A'"
        )
        == []
    )


def test_definitions_change_while_a_session_holds_many_groups_and_sends_on(shop: Shop) -> None:
    (holding,) = shop.sessions(1)
    dialogs = [holding.dialog() for _ in range(3)]
    for dialog in dialogs:
        holding.send(dialog)
    holding.connection.commit()
    holding.send(dialogs[0])
    for change, _ in CHANGES.values():
        if "alter_service('//warehouse', 'other')" in change or "{clerk}" in change or "drop" in change:
            continue
        (changing,) = shop.sessions(1)
        changing.rows("set local lock_timeout = '5 s'")
        changing.rows(change)
        # If either waited for the other there would be a deadlock or a timeout.
        holding.send(dialogs[1])
        changing.connection.rollback()
    holding.connection.commit()


def test_a_send_that_is_refused_neither_waits_nor_leaves_a_lock(shop: Shop) -> None:
    clerk, psql = new_clerk(shop), shop.psql
    stranger = f"stranger_{uuid.uuid4().hex}"
    psql.rows(f'create role "{stranger}" login')
    dialog = psql.dialog()
    psql.send(dialog)
    shop.session(user=clerk).send(dialog)
    (holding,) = shop.sessions(1)
    holding.send(dialog)
    refused = shop.session(user=stranger, autocommit=False)
    refused.rows("set local lock_timeout = '5 s'")
    refused.rows("savepoint before")
    assert outcome(refused, dialog) == "S0229"
    refused.rows("rollback to before")
    holding.connection.rollback()
    again = shop.session(user=stranger, autocommit=False)
    again.rows("savepoint before")
    assert outcome(again, dialog) == "S0229"
    again.rows("rollback to before")
    # Who locks a row has a transaction's id.
    assert again.value("select pg_current_xact_id_if_assigned()") is None
    again.connection.rollback()
    taking = shop.session()
    taking.rows("set lock_timeout = '1 s'")
    taking.send(dialog)
    refused.connection.rollback()


def test_two_roles_send_in_turn_and_a_right_that_is_revoked_is_gone_at_once(shop: Shop) -> None:
    names = [new_clerk(shop) for _ in range(2)]
    clerks = [shop.session(user=name) for name in names]
    dialog = shop.psql.dialog()
    for _ in range(3):
        for clerk in clerks:
            clerk.send(dialog, "order", b"x")
    shop.psql.rows("select broker.revoke('RECEIVE', 'QUEUE', 'shop', %s)", names[0])
    assert outcome(clerks[0], dialog) == "S0229"
    clerks[1].send(dialog, "order", b"x")
    assert outcome(clerks[0], dialog) == "S0229"
    shop.psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', 'public')")
    assert [outcome(clerk, dialog) for clerk in clerks for _ in range(2)] == [SENT] * 4
    shop.psql.rows("select broker.revoke('RECEIVE', 'QUEUE', 'shop', 'public')")
    assert [outcome(clerk, dialog) for clerk in clerks] == ["S0229", SENT]
    assert len(shop.psql.bodies(top=100)) == 12


def test_send_does_not_write_the_group_while_a_long_transaction_makes_that_vain(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    for _ in range(2):
        psql.send(dialog)
    (long,) = shop.sessions(1)
    long.rows("select pg_current_xact_id()")
    psql.rows("select broker.alter_queue('warehouse', retention => true)")
    before = psql.value(PLACE)
    for _ in range(3):
        psql.send(dialog)
    assert psql.value(PLACE) == before
    long.connection.rollback()
    psql.send(dialog)
    assert psql.value(PLACE) != before


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("place", ["alone", "beside another dialog"])
def test_a_snapshot_from_before_a_dialog_moved_or_ended_sends_nothing_on_it(
    shop: Shop, level: str, place: str
) -> None:
    psql = shop.psql
    first, other = psql.dialog(), psql.dialog()
    psql.send(first)
    for change in ("broker.move_conversation({dialog}, {group})", "broker.end_conversation({dialog})"):
        dialog = psql.dialog(**({} if place == "alone" else {"related_conversation": first}))
        for _ in range(2):
            psql.send(dialog)
        old = shop.session(autocommit=False)
        old.rows(f"set transaction isolation level {level}")
        old.rows("select 1")
        assert outcome(old, dialog) == SENT
        old.connection.rollback()
        old.rows(f"set transaction isolation level {level}")
        old.rows("select 1")
        group = psql.value(
            "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
            other,
        )
        psql.rows("select " + change.format(dialog=f"'{dialog}'", group=f"'{group}'"))
        assert outcome(old, dialog) == "40001"
        old.connection.rollback()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("place", ["alone", "beside another dialog"])
def test_a_snapshot_from_before_a_definition_changed_sends_by_what_it_sees(
    shop: Shop, level: str, place: str
) -> None:
    psql = shop.psql
    first = psql.dialog()
    psql.send(first)
    dialog = first if place == "alone" else psql.dialog(related_conversation=first)
    for _ in range(2):
        psql.send(dialog)
    old = shop.session(autocommit=False)
    old.rows(f"set transaction isolation level {level}")
    old.rows("select 1")
    psql.rows("select broker.alter_message_type('order', 'EMPTY')")
    assert outcome(old, dialog) == SENT
    old.connection.commit()
    assert outcome(psql, dialog) == "S8430"


def test_a_change_that_is_rolled_back_costs_each_dialog_a_plan_and_no_more(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    for _ in range(2):
        psql.send(dialog)
    before = psql.value(PLACE)
    (changing,) = shop.sessions(1)
    for change, _ in CHANGES.values():
        if "{clerk}" not in change:
            changing.rows("savepoint before")
            changing.rows(change.format())
            changing.rows("rollback to before")
    # While that transaction is not over, no plan is made; nor does SEND wait for it.
    psql.send(dialog, "order", b"x")
    assert psql.value(PLACE) == before
    changing.connection.rollback()
    psql.send(dialog, "order", b"x")
    made = psql.value(PLACE)
    assert made != before
    psql.send(dialog, "order", b"x")
    assert psql.value(PLACE) == made
    assert psql.bodies().count(b"x") == 3


@pytest.mark.parametrize("first", ["older", "younger"])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_of_two_changes_at_a_time_neither_waits_and_none_is_overlooked(
    shop: Shop, first: str, ends: str
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    for _ in range(2):
        psql.send(dialog)
    older, younger = shop.sessions(2)
    for session in (older, younger):
        session.rows("set local lock_timeout = '5 s'")
        session.rows("select pg_current_xact_id()")
    harmless = "select broker.alter_message_type('ack', 'EMPTY')"
    change, expected = CHANGES["validation"]
    in_turn = [older, younger] if first == "older" else [younger, older]
    for session in in_turn:
        session.rows(harmless if session is older else change)
    # The older one ends, so a plan may be made that is younger than its mark.
    getattr(older.connection, ends)()
    psql.rows("select pg_current_xact_id()")
    for _ in range(3):
        psql.send(dialog, "order", b"x")
    younger.connection.commit()
    assert outcome(psql, dialog) == expected


def test_senders_and_changers_at_once_end_with_what_was_committed_last(shop: Shop) -> None:
    dialogs = [shop.psql.dialog() for _ in range(2)]
    over = threading.Event()

    def send_on(dialog: UUID) -> int:
        session, sent = shop.session(), 0
        while not over.is_set():
            sent += outcome(session, dialog) == SENT
        return sent

    def change_on(kind: str, count: int) -> None:
        session = shop.session()
        for _ in range(count):
            session.rows(f"select broker.alter_message_type('{kind}', 'NONE')")

    sending = [in_background(partial(send_on, dialog)) for dialog in dialogs]
    changing = [in_background(partial(change_on, kind, 40)) for kind in ("ack", "order", "order")]
    for work in changing:
        work.result(200)
    shop.psql.rows("select broker.alter_message_type('order', 'EMPTY')")
    assert [outcome(shop.psql, dialog) for dialog in dialogs] == ["S8430"] * 2
    over.set()
    assert all(work.result(200) > 0 for work in sending)


def test_each_dialog_of_a_group_is_sent_by_its_own_plan(shop: Shop) -> None:
    psql = shop.psql
    first = psql.dialog()
    group = [first, *(psql.dialog(related_conversation=first) for _ in range(2))]
    for turn in range(3):
        for dialog in group:
            psql.send(dialog, "order", str(dialog).encode() + str(turn).encode())
    psql.end(first)
    assert outcome(psql, first) == "S8426"
    for dialog in group[1:]:
        psql.send(dialog, "order", b"x")
    received: dict[UUID, list[bytes | None]] = {}
    while found := psql.rows(
        "select conversation_handle, message_body from broker.receive('warehouse', 100)"
    ):
        for handle, body in found:
            received.setdefault(handle, []).append(body)
    for dialog in group[1:]:
        expected = [str(dialog).encode() + str(turn).encode() for turn in range(3)]
        assert received[psql.handle_of(dialog)] == [*expected, b"x"]
