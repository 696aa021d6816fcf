"""Transactions: edge cases 93 to 96."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.shop import in_background, until, waits

if TYPE_CHECKING:
    from tests.shop import Shop


def test_edge_093_receive_send_end_timer_and_tables_commit_or_vanish_together(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("create table booked (body bytea)")
    dialog, ended = psql.dialog(), psql.dialog()
    for handle in (dialog, ended):
        psql.send(handle, "order", b"order")
    target, ended_target = psql.handle_of(dialog), psql.handle_of(ended)
    (worker,) = shop.sessions(1)

    def work() -> None:
        worker.rows(
            "insert into booked select message_body from broker.receive('warehouse', conversation_handle => %s)",
            target,
        )
        worker.send(target, "ack", b"booked")
        worker.rows("select broker.begin_conversation_timer(%s, '1 h')", target)
        worker.end(ended_target)
        worker.send(worker.dialog(), "order", b"from the same transaction")

    def seen() -> dict[str, object]:
        return {
            "booked": psql.rows("select body from booked"),
            "shop": psql.value("select count(*) from shop"),
            "warehouse": sorted(psql.rows("select message_body from warehouse")),
            "timers": psql.value("select count(dialog_timer) from broker.conversation_endpoints"),
            "ended": psql.state(ended_target),
        }

    before = seen()
    assert before == {
        "booked": [],
        "shop": 0,
        "warehouse": [(b"order",), (b"order",)],
        "timers": 0,
        "ended": "CO",
    }
    work()
    worker.connection.rollback()
    assert seen() == before
    work()
    worker.connection.commit()
    assert seen() == {
        "booked": [(b"order",)],
        "shop": 2,
        "warehouse": [(b"from the same transaction",)],
        "timers": 1,
        "ended": "CD",
    }


def test_edge_094_outside_of_a_transaction_a_message_is_gone_whatever_happens_next(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"not a number")
    assert psql.bodies() == [b"not a number"]
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        psql.rows("select 'not a number'::integer")
    assert psql.bodies() == []
    # In one statement it is one transaction: what fails there is received again.
    psql.send(psql.dialog(), "order", b"not a number")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        psql.rows(
            "select convert_from(message_body, 'UTF8')::integer from broker.receive('warehouse', top => 1)"
        )
    assert psql.bodies() == [b"not a number"]


def test_edge_096_locks_in_another_order_are_a_deadlock_that_ends_and_loses_nothing(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("create table stock (id integer primary key, amount integer); insert into stock values (1, 9)")
    dialog = psql.dialog()
    psql.send(dialog, "order", b"order")
    target = psql.handle_of(dialog)
    reader, clerk = shop.sessions(2)
    for session in (reader, clerk):
        session.rows("set deadlock_timeout = '20 ms'")
        session.connection.commit()
    assert reader.bodies() == [b"order"]
    take = "update stock set amount = amount - 1 where id = 1"
    clerk.rows(take)
    waiting = in_background(lambda: clerk.send(target, "ack", b"counted"))
    until(lambda: waits(psql, clerk, "Lock"))
    try:
        reader.rows(take)
    except psycopg.errors.DeadlockDetected:
        reader.connection.rollback()
        waiting.result(200)
        clerk.connection.commit()
        expected = [b"order"]
    else:
        with pytest.raises(psycopg.errors.DeadlockDetected):
            waiting.result(200)
        clerk.connection.rollback()
        reader.connection.commit()
        expected = []
    assert psql.bodies() == expected
    assert psql.value("select amount from stock") == 8
