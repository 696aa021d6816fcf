"""Dialogs and sending: rows 36 to 55 of the checklist."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.shop import Shop


def test_rows_036_037_edge_023_begin_dialog_makes_one_endpoint_and_nothing_more(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.value("select broker.begin_dialog('//shop', '//nowhere yet', 'ordering')")
    endpoints = psql.rows(
        "select conversation_handle, is_initiator, state, state_desc, far_service, far_broker_instance, priority"
        " from broker.conversation_endpoints"
    )
    assert endpoints == [(dialog, True, "SO", "STARTED_OUTBOUND", "//nowhere yet", None, 5)]
    assert psql.value("select count(*) from broker.conversation_groups") == 1
    assert psql.rows("select from broker.transmission_queue") == []
    psql.end(dialog)
    assert psql.rows("select from broker.conversation_endpoints") == []


def test_rows_043_044_edge_049_the_first_send_is_number_0_and_arrives_in_the_senders_transaction(
    shop: Shop,
) -> None:
    sender, reader = shop.session(autocommit=False), shop.psql
    dialog = sender.dialog()
    sender.send(dialog, "order", b"first")
    assert sender.state(dialog) == "CO"
    assert sender.rows("select message_sequence_number from warehouse") == [(0,)]
    assert sender.rows("select from broker.transmission_queue") == []
    assert reader.bodies() == []
    sender.connection.commit()
    assert reader.receive() == [("order", 0, b"first")]


def test_rows_045_046_edge_047_what_has_no_service_yet_waits_and_arrives_when_it_appears(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.value("select broker.begin_dialog('//shop', '//later', 'ordering')")
    psql.send(dialog, "order", b"0")
    psql.send(dialog, "order", b"1")
    assert psql.state(dialog) == "CO"
    rows = psql.rows(
        "select message_sequence_number, to_service_name, from_service_name, message_type_name, is_end_of_dialog"
        " from broker.transmission_queue order by 1"
    )
    assert rows == [(0, "//later", "//shop", "order", False), (1, "//later", "//shop", "order", False)]
    assert "//later" in psql.value("select broker.get_transmission_status(%s)", dialog)
    psql.rows("select broker.create_service('//later', 'warehouse', '{ordering}')")
    psql.send(dialog, "order", b"2")
    assert psql.receive() == [("order", 0, b"0"), ("order", 1, b"1"), ("order", 2, b"2")]


def test_row_047_edge_081_no_body_is_null_and_a_null_body_is_refused(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.rows("select broker.send(%s, 'order')", dialog)
    psql.rows("select broker.send(%s, 'order', '')", dialog)
    psql.rows("""select broker.send(%s, 'order', '{"a": 1}'::jsonb)""", dialog)
    psql.rows("select broker.send(%s, 'order', 'grün')", dialog)
    assert psql.refused("select broker.send(%s, 'order', null)", dialog) == "S8433"
    assert psql.refused("select broker.send_batch(%s, 'order', array[null, 'x']::bytea[])", dialog) == "S8433"
    assert psql.refused("select broker.send_batch(%s, 'order', null)", dialog) == "S8433"
    psql.rows("select broker.send_batch(%s, 'order', '{}')", dialog)
    assert psql.bodies() == [None, None, b'{"a": 1}', "grün".encode()]


def test_row_048_send_is_refused_on_an_unknown_handle_and_in_a_wrong_state(shop: Shop) -> None:
    psql = shop.psql
    unknown = "00000000-0000-0000-0000-000000000000"
    assert psql.refused("select broker.send(%s, 'order')", unknown) == "S8426"
    assert psql.refused("select broker.send(null, 'order')") == "S8426"
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    psql.end(target)
    assert psql.refused("select broker.send(%s, 'order')", dialog) == "S8429"
    assert psql.refused("select broker.send(%s, 'ack')", target) == "S8429"
    psql.end(dialog)
    assert psql.refused("select broker.send(%s, 'order')", dialog) == "S8426"


def test_rows_051_053_055_081_edge_024_each_side_has_its_own_handle_and_group(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    endpoints = psql.rows(
        "select conversation_id, conversation_handle, conversation_group_id, is_initiator, state"
        " from broker.conversation_endpoints order by is_initiator"
    )
    (target_id, target, target_group, _, target_state), (initiator_id, initiator, initiator_group, _, _) = (
        endpoints
    )
    assert initiator == dialog
    assert target_id == initiator_id
    assert len({target, initiator, target_group, initiator_group}) == 4
    assert target_state == "CO"
    psql.send(target, "ack", b"back")
    assert psql.receive("shop") == [("ack", 0, b"back")]


def test_row_054_a_rollback_leaves_nothing(shop: Shop) -> None:
    sender = shop.session(autocommit=False)
    sender.send(sender.dialog(), "order", b"never")
    sender.connection.rollback()
    for view in ("broker.conversation_endpoints", "broker.conversation_groups", "warehouse"):
        assert shop.psql.rows(f"select from {view}") == []
