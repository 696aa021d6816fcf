"""Dialogs and sending: rows 36 to 55 of the checklist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.shop import END_DIALOG, ERROR

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
    for handle, kind, state in ((dialog, "order", "DI"), (target, "ack", "CD")):
        with pytest.raises(psycopg.Error, match=f"in state {state} "):
            psql.send(handle, kind)
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


def test_row_038_a_named_broker_pins_the_database(shop: Shop) -> None:
    psql = shop.psql
    begin = "select broker.begin_dialog('//shop', '//warehouse', 'ordering', broker_instance => %s)"
    far = "select far_broker_instance from broker.conversation_endpoints where conversation_handle = %s"
    own = psql.value("select service_broker_guid from broker.databases")
    for instance in ("CURRENT DATABASE", str(own), f"{{{own}}}"):
        dialog = psql.value(begin, instance)
        psql.send(dialog, "order", instance.encode())
        assert psql.value(far, dialog) == own
        assert psql.bodies() == [instance.encode()]
    elsewhere = psql.value(begin, "8f0a2f4e-5a5b-4c5d-8e6f-000000000001")
    psql.send(elsewhere)
    assert psql.bodies() == []
    assert psql.value("select broker.get_transmission_status(%s)", elsewhere) != ""


def test_row_040_related_conversations_share_a_group_of_one_service(shop: Shop) -> None:
    psql = shop.psql
    group_of = (
        "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s"
    )
    first = psql.dialog()
    related = psql.dialog(related_conversation=first)
    group = psql.value(group_of, first)
    assert psql.value(group_of, related) == group
    assert psql.value(group_of, psql.dialog(related_conversation_group=group)) == group
    own_group = psql.value("select gen_random_uuid()")
    assert psql.value(group_of, psql.dialog(related_conversation_group=own_group)) == own_group
    assert psql.value("select count(*) from broker.conversation_groups") == 2
    for dialog in (first, related):
        psql.send(dialog)
    assert psql.value(group_of, psql.handle_of(first)) != psql.value(group_of, psql.handle_of(related))
    begin = "select broker.begin_dialog(%s, '//warehouse', 'ordering', related_conversation{} => %s)"
    unknown = "00000000-0000-0000-0000-000000000000"
    assert psql.refused(begin.format(""), "//shop", unknown) == "S8426"
    psql.rows("select broker.create_service('//branch', 'shop')")
    assert psql.refused(begin.format(""), "//branch", first) == "S9610"
    assert psql.refused(begin.format("_group"), "//branch", group) == "S9610"


def test_row_042_a_dialog_is_encrypted_unless_it_is_said_not_to_be(shop: Shop) -> None:
    psql = shop.psql
    encrypted = "select is_encrypted from broker.conversation_endpoints where conversation_handle = %s"
    plain = psql.dialog(encryption=False)
    for dialog, expected in ((psql.dialog(), True), (plain, False)):
        psql.send(dialog)
        assert psql.value(encrypted, dialog) is expected
        assert psql.value(encrypted, psql.handle_of(dialog)) is expected


def test_edge_048_an_unknown_service_is_waited_for_unless_its_broker_is_named(shop: Shop) -> None:
    psql = shop.psql
    begin = "select broker.begin_dialog('//shop', '//nowhere', 'ordering', broker_instance => %s)"
    waiting = psql.value(begin, None)
    psql.send(waiting)
    assert psql.state(waiting) == "CO"
    assert psql.value("select count(*) from broker.transmission_queue") == 1
    pinned = psql.value(begin, "CURRENT DATABASE")
    psql.send(pinned, "order", b"0")
    ((kind, _, body),) = psql.receive("shop")
    assert (kind, b"<Code>-8490</Code>" in (body or b"")) == (ERROR, True)
    assert psql.state(pinned) == "ER"
    assert psql.value("select count(*) from broker.transmission_queue") == 1


def test_row_050_a_large_message_arrives_whole(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.rows("select broker.send(%s, 'order', repeat('0123456789abcdef', 1 << 20))", dialog)
    assert psql.rows(
        "select octet_length(message_body), md5(message_body) from broker.receive('warehouse')"
    ) == psql.rows("select 16 << 20, md5(repeat('0123456789abcdef', 1 << 20))")


def test_edge_046_a_service_may_talk_to_itself(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_service('//monologue', 'shop', '{ordering}')")
    dialog = psql.value("select broker.begin_dialog('//monologue', '//monologue', 'ordering')")
    psql.send(dialog, "order", b"question")
    target = psql.handle_of(dialog)
    psql.send(target, "ack", b"answer")
    look = "select conversation_handle, message_body, service_name from broker.receive('shop')"
    assert sorted(psql.rows(look) + psql.rows(look)) == sorted(
        [(target, b"question", "//monologue"), (dialog, b"answer", "//monologue")]
    )
    psql.end(dialog)
    assert psql.receive("shop", conversation_handle=target) == [(END_DIALOG, 1, None)]


def test_edge_082_a_body_that_nobody_validates_arrives_byte_for_byte(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    mixed = '<?xml version="1.0" encoding="UTF-8"?><a/>'.encode("utf-16")
    psql.send(dialog, "order", mixed)
    assert psql.bodies() == [mixed]
    if shop.has_xml_parser:
        assert psql.refused("select broker.send(%s, 'invoice', %s::bytea)", dialog, mixed) == "S8430"
