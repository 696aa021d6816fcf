"""RECEIVE TOP (1) believes what it noted of a conversation, its receive plan, only while that is true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.conftest import Database

PLANS = "select count(*) from broker_private.groups where (receive_plan).endpoint_no is not null"
RECEIVE = "select * from broker.receive(%s, %s)"


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    shop = Shop(database)
    shop.psql.rows("set lock_timeout = '5 s'")
    yield shop
    shop.close()


def planned_dialog(shop: Shop, **options: object) -> UUID:
    """Return a dialog whose target's side has a receive plan."""
    plans = shop.psql.value(PLANS)
    dialog = shop.psql.dialog(**options)
    for _ in range(3):
        shop.psql.send(dialog, "order", b"x")
        assert shop.psql.bodies(top=1) == [b"x"]
    assert shop.psql.value(PLANS) == plans + 1
    return dialog


def next_message(shop: Shop, queue: str = "warehouse") -> tuple[Any, ...]:
    """Receive a message by TOP (1), every column as TOP (2) returns it, which notes nothing."""
    (session,) = shop.sessions(1)
    expected = session.rows(RECEIVE, queue, 2)[0]
    session.connection.rollback()
    (row,) = shop.psql.rows(RECEIVE, queue, 1)
    assert row == expected
    return row


def validation_of(row: tuple[Any, ...]) -> str:
    return str(row[12])


def test_one_message_is_returned_as_many_are(shop: Shop) -> None:
    dialog = planned_dialog(shop)
    for kind in ("order", "nudge", "order", "order"):
        shop.psql.send(dialog, kind, b"" if kind == "nudge" else b"y")
    shop.psql.end(dialog)
    rows = [next_message(shop) for _ in range(5)]
    assert [row[5] for row in rows] == [3, 4, 5, 6, 7]
    assert [row[10] for row in rows[:4]] == ["order", "nudge", "order", "order"]


def test_an_error_comes_first_with_an_id_of_its_own(shop: Shop) -> None:
    dialog = planned_dialog(shop)
    shop.psql.send(dialog, "order", b"y")
    shop.psql.end(dialog, 7, "lost")
    rows = [next_message(shop) for _ in range(2)]
    assert [row[13] is not None and b"lost" in row[13] for row in rows] == [True, False]


def test_each_dialog_of_a_group_is_received_as_itself(shop: Shop) -> None:
    psql = shop.psql
    dialogs = [planned_dialog(shop), psql.dialog()]
    psql.send(dialogs[1], "order", b"y")
    assert psql.bodies(top=1) == [b"y"]
    group = psql.value(
        "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
        psql.handle_of(dialogs[0]),
    )
    psql.rows("select broker.move_conversation(%s, %s)", psql.handle_of(dialogs[1]), group)
    for _ in range(4):
        for dialog in dialogs:
            psql.send(dialog, "order", str(dialog).encode())
    for _ in range(8):
        row = next_message(shop)
        assert (row[3], str(row[4])) == (group, str(psql.handle_of(row[13].decode())))


def test_a_moved_conversation_is_received_with_its_new_group(shop: Shop) -> None:
    psql = shop.psql
    dialog, other = planned_dialog(shop), planned_dialog(shop)
    group = psql.value(
        "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
        psql.handle_of(other),
    )
    psql.rows("select broker.move_conversation(%s, %s)", psql.handle_of(dialog), group)
    psql.send(dialog, "order", b"y")
    assert next_message(shop)[3] == group


def test_a_service_that_took_its_conversations_to_another_queue(shop: Shop) -> None:
    dialog = planned_dialog(shop)
    shop.psql.rows("select broker.create_queue('annex'), broker.alter_service('//warehouse', 'annex')")
    shop.psql.send(dialog, "order", b"y")
    assert shop.psql.bodies() == []
    assert next_message(shop, "annex")[13] == b"y"


def test_a_message_that_was_sent_while_the_conversation_ended_is_not_returned(shop: Shop) -> None:
    dialog = planned_dialog(shop)
    (sending,) = shop.sessions(1)
    sending.send(dialog, "order", b"y")
    shop.psql.end(shop.psql.handle_of(dialog))
    sending.connection.commit()
    assert shop.psql.rows(RECEIVE, "warehouse", 1) == []
    assert shop.psql.value("select count(*) from broker_private.messages where body = 'y'") == 0


def test_a_validation_that_changed_is_returned(shop: Shop) -> None:
    dialog = planned_dialog(shop)
    shop.psql.rows("select broker.alter_message_type('order', 'EMPTY')")
    for _ in range(20):
        shop.psql.send(dialog, "order")
        assert validation_of(next_message(shop)) == "E"
    # One that is true again is noted again.
    assert shop.psql.value(
        "select (g.receive_plan).message.validation = 'E'"
        " from broker_private.groups g where (g.receive_plan).endpoint_no is not null"
    )


def test_a_plan_that_was_made_before_a_change_was_committed_is_never_believed(shop: Shop) -> None:
    dialog = planned_dialog(shop)
    # Makes each plan worthless.
    shop.psql.rows("select broker.alter_message_type('ack', 'EMPTY')")
    (changing,) = shop.sessions(1)
    changing.rows("select broker.alter_message_type('order', 'EMPTY')")
    # A transaction that began later ends: what is over is no longer all that has a smaller number.
    shop.psql.rows("select pg_current_xact_id()")
    for _ in range(20):
        shop.psql.send(dialog, "order")
        assert validation_of(next_message(shop)) == "N"
    changing.connection.commit()
    shop.psql.send(dialog, "order")
    assert validation_of(next_message(shop)) == "E"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_snapshot_sees_what_was_true_when_it_was_taken(shop: Shop, level: str) -> None:
    dialog = planned_dialog(shop)
    shop.psql.send(dialog, "order", b"y")
    (reading,) = shop.sessions(1)
    reading.rows(f"set transaction isolation level {level}")
    reading.rows("select 1")
    shop.psql.rows("select broker.alter_message_type('order', 'EMPTY')")
    (row,) = reading.rows(RECEIVE, "warehouse", 1)
    assert (row[13], validation_of(row)) == (b"y", "N")
    reading.connection.rollback()
    reading.rows(f"set transaction isolation level {level}")
    reading.rows("select 1")
    shop.psql.end(shop.psql.handle_of(dialog))
    with pytest.raises(psycopg.errors.SerializationFailure):
        reading.rows(RECEIVE, "warehouse", 1)


def test_who_receives_by_handle_or_group_gets_the_same(shop: Shop) -> None:
    dialog = planned_dialog(shop)
    handle = shop.psql.handle_of(dialog)
    for argument, column in (("conversation_handle", 4), ("conversation_group_id", 3)):
        shop.psql.send(dialog, "order", b"y")
        (session,) = shop.sessions(1)
        (expected,) = session.rows(RECEIVE, "warehouse", 1)
        session.connection.rollback()
        found = shop.psql.rows(
            f"select * from broker.receive('warehouse', 1, {argument} => %s)", expected[column]
        )
        assert found == [expected]
        assert found[0][4] == handle


def test_one_message_has_its_conversations_priority_before_and_after_the_plan(shop: Shop) -> None:
    shop.psql.rows(
        "select broker.create_broker_priority('high', remote_service_name => '//shop', priority_level => 8)"
    )
    dialog = shop.psql.dialog()
    for _ in range(5):
        shop.psql.send(dialog, "order", b"x")
        assert next_message(shop)[1] == 8
    assert shop.psql.value(PLANS) == 1
