"""SEND at its edges: rows 19, 35, 46, 50 and 54, edge cases 44, 48 and 61."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.shop import ERROR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.shop import Session, Shop


@contextmanager
def _largest_body(psql: Session, size: int) -> Iterator[None]:
    """Let a message be this large only, as nobody wants to send a gigabyte in a test."""
    definition = psql.value("select pg_get_functiondef('broker_private.largest_body'::regproc)")
    psql.rows(definition.replace("1000000000", str(size)))
    yield
    psql.rows(definition)


def _code(body: bytes | None) -> int:
    return int((body or b"").split(b"<Code>")[1].split(b"</Code>")[0])


def test_row_050_a_body_that_is_too_large_is_refused_and_nothing_is_sent(shop: Shop) -> None:
    psql = shop.psql
    dialog, other = psql.dialog(), psql.dialog()
    assert psql.value("select broker_private.largest_body()") == 1_000_000_000
    with _largest_body(psql, 1000):
        for _ in range(2):
            refused = psql.refused("select broker.send(%s, 'order', %s::bytea)", dialog, b"x" * 1001)
            assert refused == "S8459"
            psql.send(dialog, "order", b"x" * 1000)
        batch = "select broker.send_batch(%s, 'order', array['small', %s::bytea])"
        assert psql.refused(batch, dialog, b"x" * 1001) == "S8459"
        both = "select broker.send_all(%s, 'order', %s::bytea)"
        assert psql.refused(both, [dialog, other], b"x" * 1001) == "S8459"
    assert psql.bodies() == [b"x" * 1000] * 2
    psql.send(dialog, "order", b"x" * 1001)
    assert psql.bodies() == [b"x" * 1001]


def test_row_054_what_is_begun_and_sent_after_a_savepoint_goes_with_it(shop: Shop) -> None:
    psql, sender = shop.psql, shop.session(autocommit=False)
    kept = sender.dialog()
    sender.send(kept, "order", b"kept")
    sender.rows("savepoint s")
    lost = sender.dialog()
    sender.send(lost, "order", b"lost")
    sender.send(kept, "order", b"lost too")
    sender.rows("rollback to s")
    sender.send(kept, "order", b"kept too")
    sender.connection.commit()
    assert psql.receive() == [("order", 0, b"kept"), ("order", 1, b"kept too")]
    assert psql.state(lost) is None
    assert psql.value("select count(*) from broker.conversation_endpoints") == 2


def test_edge_048_a_missing_service_is_waited_for_unless_its_broker_was_named(shop: Shop) -> None:
    psql = shop.psql
    begin = "select broker.begin_dialog('//shop', '//nobody', 'ordering'{})"
    waiting = psql.value(begin.format(""))
    psql.send(waiting, "order", b"patient")
    assert psql.state(waiting) == "CO"
    assert psql.value("select broker.get_transmission_status(%s)", waiting) != ""
    assert psql.receive("shop") == []
    named = psql.value(begin.format(", broker_instance => 'CURRENT DATABASE'"))
    psql.send(named, "order", b"hopeless")
    ((kind, _, body),) = psql.receive("shop")
    assert (kind, _code(body), psql.state(named)) == (ERROR, -8490, "ER")
    assert len(psql.rows("select from broker.transmission_queue")) == 1
    psql.rows("select broker.create_service('//nobody', 'warehouse', '{ordering}')")
    psql.send(waiting, "order", b"and rewarded")
    assert psql.bodies() == [b"patient", b"and rewarded"]


def test_edge_061_a_disabled_broker_takes_messages_and_says_why_they_wait(shop: Shop) -> None:
    psql = shop.psql
    open_one = psql.dialog()
    psql.send(open_one, "order", b"before")
    psql.rows("select broker.alter_broker('DISABLE_BROKER')")
    new_one = psql.dialog()
    for dialog in (open_one, new_one):
        psql.send(dialog, "order", b"while it is off")
        assert psql.value("select broker.get_transmission_status(%s)", dialog).startswith("9791")
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", [open_one, new_one], b"to both" * 50)
    statuses = psql.rows("select transmission_status from broker.transmission_queue")
    assert [text[:4] for (text,) in statuses] == ["9791"] * 4
    psql.rows("select broker.alter_broker('ENABLE_BROKER')")
    received = sorted([psql.bodies(), psql.bodies()], key=len)
    assert received == [
        [b"while it is off", b"to both" * 50],
        [b"before", b"while it is off", b"to both" * 50],
    ]


def test_rows_019_035_edge_044_what_open_conversations_use_goes_and_they_learn_it(shop: Shop) -> None:
    psql = shop.psql
    by_contract = psql.dialog()
    psql.send(by_contract, "order", b"unread")
    assert psql.refused("select broker.drop_message_type('order')") == "S3716"
    assert psql.refused("select broker.drop_contract('ordering')") == "S3716"
    psql.rows("select broker.alter_service('//warehouse', drop_contracts => '{ordering}')")
    psql.rows("select broker.drop_contract('ordering')")
    for queue in ("shop", "warehouse"):
        kind, _, body = psql.receive(queue)[0]
        assert (kind, _code(body)) == (ERROR, -8487)
    assert psql.refused("select broker.send(%s, 'order')", by_contract) == "S8429"
    by_service = psql.value("select broker.begin_dialog('//shop', '//warehouse')")
    psql.rows("select broker.send(%s)", by_service)
    never_sent = psql.value("select broker.begin_dialog('//shop', '//warehouse')")
    psql.rows("select broker.drop_service('//warehouse')")
    assert psql.rows("select from warehouse") == []
    ((kind, _, body),) = psql.receive("shop")
    assert (kind, _code(body), psql.state(by_service)) == (ERROR, -8470, "ER")
    assert psql.state(never_sent) == "SO"
