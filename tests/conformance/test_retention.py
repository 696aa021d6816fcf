"""RETENTION: rows 26 to 28 of the checklist, edge cases 79 and 80."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from uuid import UUID

    from tests.shop import Session, Shop


def retain(session: Session, queue: str, *, retention: bool = True) -> None:
    session.rows("select broker.alter_queue(%s, retention => %s)", queue, retention)


def kept(session: Session, queue: str) -> list[tuple[Any, ...]]:
    return session.rows(
        f"select status, message_sequence_number, message_body from {queue} order by queuing_order"
    )


def depths(session: Session, queue: str) -> tuple[int, int]:
    (counted,) = session.rows("select ready, retained from broker.queue_depths where queue_name = %s", queue)
    return counted[0], counted[1]


def served(shop: Shop) -> tuple[Session, UUID, UUID]:
    """Retain on both queues, and let one message arrive on a new dialog; return its two sides."""
    psql = shop.psql
    retain(psql, "shop")
    retain(psql, "warehouse")
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    return psql, dialog, psql.handle_of(dialog)


def test_rows_026_027_what_was_received_and_sent_stays_in_the_queue_until_its_side_ends(shop: Shop) -> None:
    psql, dialog, target = served(shop)
    psql.send(dialog, "order", b"1")
    assert psql.value("select is_retention_enabled from broker.service_queues where name = 'shop'")
    assert kept(psql, "shop") == [(3, 0, b"0"), (3, 1, b"1")]
    assert kept(psql, "warehouse") == [(1, 0, b"0"), (1, 1, b"1")]
    ids = psql.rows("select message_id from warehouse order by queuing_order")
    assert psql.bodies(top=1) == [b"0"]
    psql.send(target, "ack", b"answer")
    assert kept(psql, "warehouse") == [(0, 0, b"0"), (1, 1, b"1"), (3, 0, b"answer")]
    assert psql.bodies() == [b"1"]
    assert psql.rows("select message_id from shop where status = 3 order by queuing_order") == ids
    assert psql.rows("select message_id from warehouse where status = 0 order by queuing_order") == ids
    assert depths(psql, "warehouse") == (0, 3)
    psql.end(dialog)
    assert kept(psql, "shop") == []
    psql.receive()
    assert len(kept(psql, "warehouse")) == 4
    psql.end(target)
    assert kept(psql, "warehouse") == []
    assert depths(psql, "warehouse") == (0, 0)


def test_row_027_a_rolled_back_receive_or_send_retains_nothing(shop: Shop) -> None:
    psql, dialog, _ = served(shop)
    session = shop.session(autocommit=False)
    assert session.bodies() == [b"0"]
    session.send(dialog, "order", b"lost")
    session.connection.rollback()
    assert kept(psql, "warehouse") == [(1, 0, b"0")]
    psql.send(dialog, "order", b"1")
    assert kept(psql, "shop") == [(3, 0, b"0"), (3, 1, b"1")]


def test_row_028_a_queue_that_is_off_can_not_keep_a_copy_so_nothing_is_sent(shop: Shop) -> None:
    psql, dialog, _ = served(shop)
    psql.rows("select broker.alter_queue('shop', status => false)")
    for send in ("broker.send(%s, 'order', 'x')", "broker.send_batch(%s, 'order', array['x']::bytea[])"):
        assert psql.refused(f"select {send}", dialog) == "S9618"
    assert depths(psql, "warehouse") == (1, 0)
    retain(psql, "shop", retention=False)
    psql.send(dialog, "order", b"1")
    assert psql.bodies() == [b"0", b"1"]


def test_edge_079_what_is_retained_is_never_received_again_and_is_no_reason_to_look(shop: Shop) -> None:
    psql, dialog, target = served(shop)
    psql.send(target, "ack", b"copied")
    assert psql.bodies() == [b"0"]
    assert psql.bodies() == []
    assert psql.bodies(conversation_handle=target) == []
    assert psql.bodies("shop") == [b"copied"]
    assert psql.bodies("shop", conversation_handle=dialog) == []
    assert psql.value("select broker.get_conversation_group('warehouse')") is None
    assert psql.value("select broker.get_conversation_group('shop')") is None
    psql.rows("create procedure public.read() language plpgsql as 'begin end'")
    for queue in ("shop", "warehouse"):
        psql.rows(
            "select broker.alter_queue(%s, activation_procedure => 'public.read', max_queue_readers => 1)",
            queue,
        )
        assert len(kept(psql, queue)) > 0
    assert psql.rows("select from broker_private.activate_queues()") == [], "nobody is started for it"


@pytest.mark.parametrize(
    "form", ["", ", 1, 'failed'", ", cleanup => true"], ids=["plain", "error", "cleanup"]
)
def test_edge_080_every_form_of_end_removes_what_was_retained_on_its_side_alone(
    shop: Shop, form: str
) -> None:
    psql, dialog, target = served(shop)
    psql.bodies()
    psql.rows(f"select broker.end_conversation(%s{form})", target)
    assert kept(psql, "warehouse") == []
    assert kept(psql, "shop")[0] == (3, 0, b"0")
    psql.end(dialog)
    assert kept(psql, "shop") == []


def test_row_027_dropping_the_service_or_renewing_the_broker_leaves_nothing_retained(shop: Shop) -> None:
    psql, *_ = served(shop)
    psql.bodies()
    psql.rows("select broker.drop_service('//warehouse')")
    assert kept(psql, "warehouse") == []
    psql.rows("select broker.drop_queue('warehouse')")
    assert [status for status, *_ in kept(psql, "shop")] == [3, 1]
    psql.rows("select broker.alter_broker('NEW_BROKER')")
    assert kept(psql, "shop") == []


def test_row_030_retention_changes_while_conversations_are_open(shop: Shop) -> None:
    psql, dialog, _ = served(shop)
    assert psql.bodies() == [b"0"]
    retain(psql, "shop", retention=False)
    psql.send(dialog, "order", b"1, not copied")
    retain(psql, "shop")
    psql.send(dialog, "order", b"2")
    assert kept(psql, "shop") == [(3, 0, b"0"), (3, 2, b"2")]
    retain(psql, "warehouse", retention=False)
    assert psql.receive() == [("order", 1, b"1, not copied"), ("order", 2, b"2")]
    assert kept(psql, "warehouse") == [(0, 0, b"0")]


def test_row_027_a_timer_and_an_end_of_the_far_side_are_retained_too(shop: Shop) -> None:
    psql, dialog, _ = served(shop)
    psql.end(dialog, 7, "out of stock")
    assert [kind for kind, _, _ in psql.receive()] == [
        "http://schemas.microsoft.com/SQL/ServiceBroker/Error",
        "order",
    ]
    assert [status for status, *_ in kept(psql, "warehouse")] == [0, 0]
