"""Operations: rows 158 to 170 of the checklist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.shop import ERROR

if TYPE_CHECKING:
    from tests.shop import Shop


def test_rows_158_159_160_161_the_broker_is_turned_off_and_on_renewed_and_reset(shop: Shop) -> None:
    psql = shop.psql
    guid = "select service_broker_guid from broker.databases"
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    psql.rows("select broker.alter_broker('DISABLE_BROKER')")
    psql.send(dialog, "order", b"1")
    unsent = psql.dialog()
    psql.send(unsent, "order", b"a")
    assert "9791" in psql.value("select broker.get_transmission_status(%s)", unsent)
    psql.rows("select broker_private.deliver_local('{}', '{}')")
    assert psql.rows("select message_body from warehouse") == [(b"0",)]
    before = psql.value(guid)
    psql.rows("select broker.alter_broker('ENABLE_BROKER')")
    psql.send(dialog, "order", b"2")
    assert psql.bodies() == [b"0", b"1", b"2"]
    assert psql.bodies() == [b"a"]
    target = psql.handle_of(dialog)
    psql.rows("select broker.alter_broker('ERROR_BROKER_CONVERSATIONS')")
    for handle, queue in ((dialog, "shop"), (target, "warehouse")):
        ((kind, _, body),) = psql.receive(queue, conversation_handle=handle)
        assert (kind, b"<Code>-9719</Code>" in (body or b""), psql.state(handle)) == (ERROR, True, "ER")
    assert psql.value(guid) == before
    psql.rows("select broker.alter_broker('NEW_BROKER')")
    assert psql.value(guid) != before
    for view in ("conversation_endpoints", "conversation_groups", "transmission_queue", "queue_messages"):
        assert psql.rows(f"select from broker.{view}") == []
    psql.send(psql.dialog(), "order", b"anew")
    assert psql.bodies() == [b"anew"]
    assert psql.refused("select broker.alter_broker('RESTART')") == "S0153"
    assert psql.refused("select broker.alter_broker()") == "S0153"
    clerk = shop.session(user=shop.database.role())
    assert clerk.refused("select broker.alter_broker('NEW_BROKER')") == "S0229"


def test_row_170_depths_are_exact_and_name_the_oldest(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[250]))", dialog)
    depths = psql.rows(
        "select queue_name, ready, is_estimate, oldest_enqueue_time is not null from broker.queue_depths order by 1"
    )
    assert depths == [("shop", 0, False, False), ("warehouse", 250, False, True)]
