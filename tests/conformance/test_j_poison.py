"""Poison messages: what rollbacks do to a queue; rows 154 and 155, edges 65 to 68 and 95."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.shop import Session, Shop


def roll_back(reader: Session, *queues: str, times: int = 1) -> None:
    """Receive from the queues in one transaction and roll it back, so many times."""
    for _ in range(times):
        for queue in queues or ("warehouse",):
            assert reader.receive(queue), f"{queue} has messages"
        reader.connection.rollback()


def switches(shop: Shop, queue: str = "warehouse") -> tuple[bool, bool]:
    (found,) = shop.psql.rows(
        "select is_receive_enabled, is_enqueue_enabled from broker.service_queues where name = %s", queue
    )
    return found[0], found[1]


ON, OFF = (True, True), (False, False)


def test_row_154_five_rollbacks_in_a_row_turn_the_queue_off(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"poison")
    (reader,) = shop.sessions(1)
    roll_back(reader, times=4)
    assert switches(shop) == ON
    roll_back(reader)
    assert switches(shop) == OFF
    for query in (
        "select from broker.receive('warehouse')",
        "select broker.get_conversation_group('warehouse')",
    ):
        assert psql.refused(query) == "S9617"
    # What a worker does each second.
    assert psql.value("select queue_name from broker_private.settle_poison()") == "warehouse"
    assert psql.rows("select queue_name from broker_private.settle_poison()") == []
    assert switches(shop) == OFF
    assert psql.refused("select from broker.receive('warehouse')") == "S9617"


def test_row_154_a_commit_begins_the_count_anew(shop: Shop) -> None:
    psql = shop.psql
    for body in (b"1", b"2"):
        psql.send(psql.dialog(), "order", body)
    (reader,) = shop.sessions(1)
    roll_back(reader, times=4)
    assert psql.bodies(top=1) == [b"1"]
    roll_back(reader, times=4)
    assert switches(shop) == ON
    roll_back(reader)
    assert switches(shop) == OFF


def test_row_154_a_transaction_that_received_nothing_does_not_count(shop: Shop) -> None:
    (reader,) = shop.sessions(1)
    for _ in range(10):
        assert reader.receive() == []
        assert reader.value("select broker.get_conversation_group('warehouse')") is None
        reader.connection.rollback()
    shop.psql.send(shop.psql.dialog(), "order", b"first")
    roll_back(reader, times=4)
    for _ in range(10):
        assert reader.value("select broker.get_conversation_group('warehouse')") is not None
        reader.connection.rollback()
    assert switches(shop) == ON
    assert shop.psql.bodies() == [b"first"]


def test_row_154_a_transaction_counts_once_however_often_it_receives(shop: Shop) -> None:
    psql = shop.psql
    for _ in range(6):
        psql.send(psql.dialog())
    (reader,) = shop.sessions(1)
    for _ in range(4):
        for _ in range(6):
            assert len(reader.receive()) == 1
        reader.connection.rollback()
    assert switches(shop) == ON


def test_row_156_a_savepoint_that_is_rolled_back_does_not_count(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"poison")
    (reader,) = shop.sessions(1)
    for _ in range(7):
        reader.rows("savepoint attempt")
        assert reader.bodies() == [b"poison"]
        reader.rows("rollback to savepoint attempt")
        reader.connection.commit()
    assert switches(shop) == ON
    assert psql.bodies() == [b"poison"]


def test_row_154_a_killed_session_counts(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog())
    for _ in range(5):
        session = shop.session(autocommit=False)
        assert session.receive()
        psql.rows("select pg_terminate_backend(%s, 60000)", session.connection.info.backend_pid)
    assert switches(shop) == OFF


def test_row_154_two_readers_that_overlap_are_both_counted(shop: Shop) -> None:
    psql = shop.psql
    for _ in range(2):
        psql.send(psql.dialog())
    one, other = shop.sessions(2)
    for _ in range(3):
        for reader in (one, other):
            assert reader.receive()
        for reader in (one, other):
            reader.connection.rollback()
    assert switches(shop) == OFF


def test_row_154_a_long_reader_that_commits_is_not_forgotten(shop: Shop) -> None:
    psql = shop.psql
    for _ in range(2):
        psql.send(psql.dialog())
    long, quick = shop.sessions(2)
    assert long.receive()
    roll_back(quick, times=4)
    long.connection.commit()
    roll_back(quick, times=4)
    assert switches(shop) == ON
    roll_back(quick)
    assert switches(shop) == OFF


def test_row_154_two_readers_that_stay_do_not_hide_for_ever_how_a_third_one_ends(shop: Shop) -> None:
    psql = shop.psql
    for _ in range(3):
        psql.send(psql.dialog())
    *staying, quick = shop.sessions(3)
    for reader in staying:
        assert reader.receive()
    for _ in range(100):
        if switches(shop) == OFF:
            return
        roll_back(quick)
    pytest.fail("the queue is on after a hundred rollbacks")


def test_row_155_edge_068_without_poison_handling_a_message_may_fail_for_ever(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.alter_queue('warehouse', poison_message_handling => false)")
    psql.send(psql.dialog(), "order", b"poison")
    (reader,) = shop.sessions(1)
    roll_back(reader, times=12)
    assert switches(shop) == ON
    # Turned on, it counts from here.
    psql.rows("select broker.alter_queue('warehouse', poison_message_handling => true)")
    roll_back(reader, times=4)
    assert switches(shop) == ON
    roll_back(reader)
    assert switches(shop) == OFF


def test_edge_066_senders_to_a_disabled_queue_do_not_fail_and_their_messages_wait(shop: Shop) -> None:
    psql = shop.psql
    open_dialog = psql.dialog()
    psql.send(open_dialog, "order", b"1")
    roll_back(shop.sessions(1)[0], times=5)
    # The first message of a dialog looks whether rollbacks have turned the queue off. Another one learns it when a
    # worker has looked; until then it waits in the queue, from which nothing can be received.
    new_dialog = psql.dialog()
    psql.send(new_dialog, "order", b"2")
    psql.send(open_dialog, "order", b"3")
    assert psql.value("select count(*) from broker.transmission_queue") == 1
    assert "disabled" in psql.value("select broker.get_transmission_status(%s)", new_dialog)
    assert psql.refused("select * from broker.receive('warehouse')") == "S9617"
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    assert sorted(psql.bodies() + psql.bodies()) == [b"1", b"2", b"3"]


def test_edge_067_turned_on_with_the_culprit_it_is_off_after_five_more(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog())
    (reader,) = shop.sessions(1)
    for _ in range(2):
        roll_back(reader, times=5)
        assert switches(shop) == OFF
        # Another option leaves it off.
        psql.rows("select broker.alter_queue('warehouse', poison_message_handling => true)")
        assert switches(shop) == OFF
        psql.rows("select broker.alter_queue('warehouse', status => true)")
        assert switches(shop) == ON
    roll_back(reader, times=4)
    assert switches(shop) == ON


def test_edge_065_edge_095_every_queue_that_the_transactions_received_from_is_off(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"there")
    psql.send(psql.handle_of(dialog), "ack", b"and back")
    (reader,) = shop.sessions(1)
    roll_back(reader, "shop", "warehouse", times=4)
    assert (switches(shop, "shop"), switches(shop)) == (ON, ON)
    roll_back(reader, "shop")
    assert (switches(shop, "shop"), switches(shop)) == (OFF, ON)
    roll_back(reader, "warehouse")
    assert switches(shop) == OFF


def test_edge_067_a_dropped_queue_takes_its_marks_along(shop: Shop) -> None:
    query = "select count(*) from pg_class where relkind = 'S' and relname like 'marks%%'"
    before = shop.psql.value(query)
    shop.psql.rows("select broker.create_queue('short')")
    assert shop.psql.value(query) > before
    shop.psql.rows("select broker.drop_queue('short')")
    assert shop.psql.value(query) == before


@pytest.mark.parametrize("isolation", list(psycopg.IsolationLevel)[1:])
def test_row_154_every_isolation_level_counts(shop: Shop, isolation: psycopg.IsolationLevel) -> None:
    shop.psql.send(shop.psql.dialog())
    (reader,) = shop.sessions(1)
    reader.connection.isolation_level = isolation
    roll_back(reader, times=5)
    assert switches(shop) == OFF
