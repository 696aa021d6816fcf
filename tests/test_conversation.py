"""Conversations as Service Broker promises them, typed as in psql; each test is named by its row of the checklist."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import psycopg
import pytest

from tests.shop import END_DIALOG, ERROR, Session, Shop, until

if TYPE_CHECKING:
    from collections.abc import Callable


def test_row_001_a_message_type_has_a_name_of_up_to_128_characters_and_an_owner(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_message_type(%s)", "n" * 128)
    assert psql.refused("select broker.create_message_type(%s)", "n" * 129) == "S0103"
    assert psql.refused("select broker.create_message_type('')") == "S0153"
    assert psql.refused("select broker.create_message_type(null)") == "S0153"
    assert psql.refused("select broker.create_message_type('order')") == "S2714"
    owner = shop.database.role("nologin")
    psql.rows("select broker.create_message_type('theirs', owner => %s::name)", owner)
    query = "select principal_id, validation from broker.service_message_types where name = 'theirs'"
    assert psql.rows(query) == [(owner, "N")]


def test_row_002_names_are_compared_byte_for_byte(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_message_type('Order')")
    psql.rows("select broker.create_contract('Ordering', sent_by_any => '{Order}')")
    psql.rows("select broker.create_service('//Warehouse', 'warehouse', '{Ordering}')")
    assert psql.refused("select broker.begin_dialog('//SHOP', '//warehouse')") == "S8423"
    assert psql.refused("select broker.begin_dialog('//shop', '//warehouse', 'ordering ')") == "S8425"
    dialog = psql.dialog()
    assert psql.refused("select broker.send(%s, 'Order')", dialog) == "S8431"


def test_row_003_none_takes_anything_and_empty_takes_no_body(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    for body in (b"", b"\x00\xff", b"text"):
        psql.send(dialog, "order", body)
    psql.send(dialog, "nudge")
    assert psql.refused("select broker.send(%s, 'nudge', 'x')", dialog) == "S8430"
    assert psql.bodies() == [None, b"\x00\xff", b"text", None]


def test_row_004_well_formed_xml_is_refused_where_the_server_can_parse(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    if not shop.has_xml_parser:
        psql.send(dialog, "invoice", b"<broken")
        assert "worker" in psql.value("select broker.get_transmission_status(%s)", dialog)
        assert psql.bodies() == []
        return
    assert psql.refused("select broker.send(%s, 'invoice', '<broken')", dialog) == "S8430"
    assert psql.refused("select broker.send(%s, 'invoice', 'no tags')", dialog) == "S8430"
    assert psql.refused("select broker.send(%s, 'invoice')", dialog) == "S8430"
    assert psql.refused("select broker.send(%s, 'invoice', '\\xff'::bytea)", dialog) == "S8430"
    psql.rows("select broker.send(%s, 'invoice', '<id>1</id>'::xml)", dialog)
    assert psql.bodies() == [b"<id>1</id>"]


def test_rows_034_035_a_service_changes_its_contracts_and_goes_with_its_conversations(shop: Shop) -> None:
    psql = shop.psql
    open_dialog, unsent, ended = psql.dialog(), psql.dialog(), psql.dialog()
    for dialog in (open_dialog, ended):
        psql.send(dialog)
    target = psql.handle_of(open_dialog)
    psql.end(ended)
    assert psql.refused("select broker.alter_service('//warehouse')") == "S8493"
    assert (
        psql.refused("select broker.alter_service('//warehouse', add_contracts => '{ordering}')") == "S8404"
    )
    psql.rows("select broker.alter_service('//warehouse', drop_contracts => '{ordering}')")
    psql.send(open_dialog, "order", b"it goes on")
    psql.send(unsent)
    assert [kind for kind, _, _ in psql.receive("shop")] == [ERROR]
    psql.rows("select broker.create_broker_priority('p', local_service_name => '//warehouse')")
    assert psql.refused("select broker.drop_service('//warehouse')") == "S3716"
    psql.rows("select broker.drop_broker_priority('p'), broker.drop_service('//warehouse')")
    assert psql.refused("select broker.drop_service('//warehouse')") == "S8423"
    assert psql.rows("select from warehouse") == []
    assert psql.state(target) == "CD"
    ((kind, _, body),) = psql.receive("shop")
    assert (kind, b"<Code>-8470</Code>" in (body or b"")) == (ERROR, True)
    assert psql.state(open_dialog) == "ER"
    psql.rows("select broker.drop_queue('warehouse')")
    psql.rows(
        "select broker.create_queue('warehouse'), broker.create_service('//warehouse', 'warehouse', '{ordering}')"
    )
    psql.send(psql.dialog(), "order", b"anew")
    assert psql.bodies() == [b"anew"]


def test_row_019_dropping_a_contract_ends_its_conversations_with_an_error(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"unread")
    target = psql.handle_of(dialog)
    assert psql.refused("select broker.drop_contract('ordering')") == "S3716"
    assert psql.refused("select broker.drop_contract('DEFAULT')") == "S9663"
    psql.rows("select broker.alter_service('//warehouse', drop_contracts => '{ordering}')")
    psql.rows("select broker.drop_contract('ordering')")
    assert psql.refused("select broker.begin_dialog('//shop', '//warehouse', 'ordering')") == "S8425"
    for handle, queue in ((dialog, "shop"), (target, "warehouse")):
        (kind, _, body), *rest = psql.receive(queue)
        assert (kind, b"<Code>-8487</Code>" in (body or b"")) == (ERROR, True)
        assert [body for _, _, body in rest] == ([b"unread"] if queue == "warehouse" else [])
        assert psql.refused("select broker.send(%s, 'nudge')", handle) == "S8429"
        psql.end(handle)
    psql.rows("select broker.create_contract('ordering', '{order}')")


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


def test_valid_json_is_what_parses_as_json(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_message_type('document', 'VALID_JSON')")
    psql.rows("select broker.create_contract('filing', '{document}')")
    psql.rows("select broker.create_service('//archive', 'warehouse', '{filing}')")
    dialog = psql.value("select broker.begin_dialog('//shop', '//archive', 'filing')")
    psql.rows("""select broker.send(%s, 'document', '{"a": [1, null]}')""", dialog)
    psql.rows("""select broker.send(%s, 'document', '"text"'::jsonb)""", dialog)
    for broken in (b"", b"{", b"\xff", b"nothing"):
        assert psql.refused("select broker.send(%s, 'document', %s::bytea)", dialog, broken) == "S8430"
    assert psql.bodies() == [b'{"a": [1, null]}', b'"text"']
    assert psql.rows(
        "select validation, validation_desc from broker.service_message_types where name = 'document'"
    ) == [("J", "JSON")]


def test_row_007_altering_a_type_leaves_queued_messages_as_they_are(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"body")
    psql.rows("select broker.alter_message_type('order', 'EMPTY')")
    assert psql.refused("select broker.send(%s, 'order', 'body')", dialog) == "S8430"
    assert psql.bodies() == [b"body"]
    assert psql.refused("select broker.alter_message_type('DEFAULT', 'EMPTY')") == "S9663"
    assert psql.refused("select broker.alter_message_type('order', 'BINARY')") == "S0153"
    assert psql.refused("select broker.alter_message_type('nothing', 'NONE')") == "S8428"


def test_row_008_a_type_that_a_contract_uses_is_not_dropped(shop: Shop) -> None:
    psql = shop.psql
    assert psql.refused("select broker.drop_message_type('order')") == "S3716"
    psql.rows("select broker.create_message_type('unused'), broker.drop_message_type('unused')")
    assert psql.refused("select broker.drop_message_type('unused')") == "S8428"


def test_rows_009_014_039_the_defaults_are_default_and_default(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.value("select broker.begin_dialog('//shop', '//warehouse')")
    psql.rows("select broker.send(%s)", dialog)
    psql.rows("select broker.send(%s, 'DEFAULT', 'text')", dialog)
    assert psql.receive() == [("DEFAULT", 0, None), ("DEFAULT", 1, b"text")]


def test_row_010_the_14_system_message_types_are_there(shop: Shop) -> None:
    rows = shop.psql.rows(
        "select message_type_id, validation from broker.service_message_types where message_type_id < 65536"
    )
    assert dict(rows) == dict(zip(range(1, 15), "XEXXEXXXXNXXNN", strict=True))


def test_rows_011_012_013_a_contract_lists_types_once_and_the_initiator_sends_something(shop: Shop) -> None:
    psql = shop.psql
    create = "select broker.create_contract('c', %s)"
    assert psql.refused(create.replace("%s", "sent_by_target => '{order}'")) == "S8492"
    assert psql.refused(create.replace("%s", "'{order}', '{order}'")) == "S8403"
    assert psql.refused(create.replace("%s", "'{nothing}'")) == "S8428"
    assert psql.refused("select broker.create_contract('ordering', '{order}')") == "S2714"
    usages = psql.rows(
        "select t.name, u.is_sent_by_initiator, u.is_sent_by_target"
        " from broker.service_contract_message_usages u"
        " join broker.service_contracts c using (service_contract_id)"
        " join broker.service_message_types t using (message_type_id) where c.name = 'ordering' order by 1"
    )
    assert usages == [
        ("ack", False, True),
        ("invoice", True, False),
        ("nudge", True, True),
        ("order", True, False),
    ]


def test_rows_015_018_direction_is_enforced_and_order_is_free(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    assert psql.refused("select broker.send(%s, 'ack')", dialog) == "S8432"
    assert psql.refused("select broker.send(%s, 'DEFAULT')", dialog) == "S8431"
    assert psql.refused("select broker.send(%s, 'nothing')", dialog) == "S8428"
    psql.send(dialog, "nudge")
    target = psql.handle_of(dialog)
    assert psql.refused("select broker.send(%s, 'order')", target) == "S8434"
    psql.send(target, "nudge")
    psql.send(target, "ack")
    psql.send(dialog, "order")
    assert [kind for kind, _, _ in psql.receive("shop")] == ["nudge", "ack"]
    assert [kind for kind, _, _ in psql.receive()] == ["nudge", "order"]


def test_rows_020_026_a_queue_has_its_defaults_and_a_view_with_the_columns_of_a_message(shop: Shop) -> None:
    psql = shop.psql
    options = psql.rows(
        "select is_receive_enabled, is_enqueue_enabled, is_retention_enabled, is_poison_message_handling_enabled,"
        " is_activation_enabled, type from broker.service_queues where name = 'shop'"
    )
    assert options == [(True, True, False, True, False, "SQ")]
    columns = psql.rows(
        "select attname, format_type(atttypid, null) from pg_attribute where attrelid = 'warehouse'::regclass and attnum > 0"
    )
    promised = psql.rows(
        "select attname, format_type(atttypid, null) from pg_attribute where attrelid = 'broker.message'::regclass and attnum > 0"
    )
    assert columns == promised
    assert psql.refused("select broker.create_queue('shop')") == "S2714"
    assert psql.refused("select broker.create_queue(%s)", "ä" * 32) == "S0103"
    assert psql.refused("select broker.create_queue('#temporary')") == "S0153"
    psql.rows("create table taken ()")
    assert psql.refused("select broker.create_queue('taken')") == "S2714"
    assert psql.rows("select from broker.service_queues where name = 'taken'") == []
    psql.rows("select broker.create_queue('Two \"words\"; drop')")
    assert psql.rows('select * from "Two ""words""; drop"') == []
    psql.rows("select broker.drop_queue('Two \"words\"; drop')")
    assert psql.refused("select broker.drop_queue('shop')") == "S3716"


def test_rows_021_022_046_a_queue_that_is_off_takes_and_gives_nothing(shop: Shop) -> None:
    psql = shop.psql
    before, after = psql.dialog(), psql.dialog()
    psql.send(before, "order", b"0")
    psql.rows("select broker.alter_queue('warehouse', status => false)")
    assert psql.refused("select broker.receive('warehouse')") == "S9617"
    assert psql.refused("select broker.get_conversation_group('warehouse')") == "S9617"
    psql.send(before, "order", b"1")
    psql.send(after, "order", b"0")
    waiting = psql.rows(
        "select message_sequence_number, message_body, transmission_status <> '' from broker.transmission_queue"
        " where conversation_handle = %s",
        before,
    )
    assert waiting == [(1, b"1", True)]
    assert "disabled" in psql.value("select broker.get_transmission_status(%s)", after)
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    psql.send(before, "order", b"2")
    assert psql.rows("select from broker.transmission_queue") == []
    assert psql.value("select broker.get_transmission_status(%s)", before) == ""
    received = psql.receive(conversation_handle=psql.handle_of(before))
    assert received == [("order", 0, b"0"), ("order", 1, b"1"), ("order", 2, b"2")]
    assert psql.bodies() == [b"0"]


def test_row_024_looking_at_a_queue_takes_nothing_and_nobody_writes_it(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"seen")
    look = "select status, message_sequence_number, message_body, service_name, validation from warehouse"
    assert psql.rows(look) == psql.rows(look) == [(1, 0, b"seen", "//warehouse", "N")]
    for write in (
        "insert into warehouse default values",
        "update warehouse set status = 1",
        "delete from warehouse",
    ):
        with pytest.raises(psycopg.Error):
            psql.rows(write)
    seen = psql.rows("select message_id, queuing_order, conversation_group_id from warehouse")
    taken = psql.rows(
        "select message_id, queuing_order, conversation_group_id from broker.receive('warehouse')"
    )
    assert seen == taken


def test_rows_032_033_a_service_accepts_only_its_contracts(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_service('//initiates only', 'warehouse')")
    dialog = psql.value("select broker.begin_dialog('//shop', '//initiates only', 'ordering')")
    psql.send(dialog, "order")
    ((kind, _, body),) = psql.receive("shop")
    assert kind == ERROR
    assert b"<Code>-8408</Code>" in (body or b"")
    assert psql.state(dialog) == "ER"
    psql.end(dialog)
    assert psql.state(dialog) is None
    back = psql.value("select broker.begin_dialog('//initiates only', '//warehouse', 'ordering')")
    psql.send(back, "order", b"by any contract")
    assert psql.bodies() == [b"by any contract"]
    assert psql.refused("select broker.create_service('//shop', 'shop')") == "S2714"
    assert psql.refused("select broker.create_service('s', 'nothing')") == "S0208"
    assert psql.refused("select broker.create_service('s', 'shop', '{ordering,ordering}')") == "S8404"
    assert psql.refused("select broker.create_service('s', 'shop', '{nothing}')") == "S8425"


def test_rows_036_037_begin_dialog_makes_one_endpoint_and_nothing_more(shop: Shop) -> None:
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


def test_rows_043_044_the_first_send_is_number_0_and_arrives_in_the_senders_transaction(shop: Shop) -> None:
    sender, reader = shop.session(autocommit=False), shop.psql
    dialog = sender.dialog()
    sender.send(dialog, "order", b"first")
    assert sender.state(dialog) == "CO"
    assert sender.rows("select message_sequence_number from warehouse") == [(0,)]
    assert sender.rows("select from broker.transmission_queue") == []
    assert reader.bodies() == []
    sender.connection.commit()
    assert reader.receive() == [("order", 0, b"first")]


def test_row_045_047_what_has_no_service_yet_waits_and_arrives_when_it_appears(shop: Shop) -> None:
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


def test_row_047_no_body_is_null_and_a_null_body_is_refused(shop: Shop) -> None:
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


def test_rows_051_053_055_each_side_has_its_own_handle_and_group(shop: Shop) -> None:
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


def test_edge_008_the_numbers_of_a_rolled_back_send_are_used_again(shop: Shop) -> None:
    sender, dialog = shop.session(autocommit=False), shop.psql.dialog()
    shop.psql.send(dialog, "order", b"0")
    sender.send(dialog, "order", b"lost")
    sender.connection.rollback()
    sender.send(dialog, "order", b"1")
    sender.connection.commit()
    assert shop.psql.receive() == [("order", 0, b"0"), ("order", 1, b"1")]


def test_rows_056_057_058_059_one_receive_gives_one_group_in_order(shop: Shop) -> None:
    psql = shop.psql
    first, second = psql.dialog(), psql.dialog()
    for number in range(3):
        for name, dialog in ((b"a", first), (b"b", second)):
            psql.send(dialog, "order", name + str(number).encode())
    assert psql.bodies(top=2) == [b"a0", b"a1"]
    assert psql.receive() == [("order", 0, b"b0"), ("order", 1, b"b1"), ("order", 2, b"b2")]
    assert psql.receive() == [("order", 2, b"a2")]
    assert psql.bodies(top=0) == []
    assert psql.refused("select broker.receive('warehouse', top => -1)") == "S0153"


def test_row_056_a_group_of_thousands_of_messages_is_received_whole_and_in_order(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    query = (
        "select broker.send_batch(%s, 'order', array(select i::text::bytea from generate_series(0, 3499) i))"
    )
    psql.rows(query, dialog)
    assert psql.value("select max(message_sequence_number) from warehouse") == 3499
    assert [number for _, number, _ in psql.receive(top=1234)] == list(range(1234))
    rest = psql.receive()
    assert [number for _, number, _ in rest] == list(range(1234, 3500))
    assert [body for _, _, body in rest] == [str(number).encode() for number in range(1234, 3500)]


def test_row_060_a_receive_by_handle_or_group_takes_only_that(shop: Shop) -> None:
    psql = shop.psql
    group = psql.value("select gen_random_uuid()")
    dialogs = [psql.dialog(related_conversation_group=group) for _ in range(2)]
    for dialog in dialogs:
        psql.send(dialog)
        psql.send(psql.handle_of(dialog), "ack", str(dialog).encode())
    first, second = dialogs
    assert psql.bodies("shop", conversation_handle=second) == [str(second).encode()]
    assert psql.bodies("shop", conversation_group_id=group) == [str(first).encode()]
    unknown = "00000000-0000-0000-0000-000000000000"
    receive = "select broker.receive('shop', conversation_handle => %s)"
    assert psql.refused(receive, unknown) == "S8426"
    assert psql.refused(receive, psql.handle_of(first)) == "S8426"
    assert psql.refused("select broker.receive('shop', conversation_group_id => %s)", unknown) == "S8436"
    both = "select broker.receive('shop', conversation_handle => %s, conversation_group_id => %s)"
    assert psql.refused(both, first, group) == "S0153"
    assert psql.refused("select broker.receive('nothing')") == "S0208"


def test_rows_061_062_a_waiting_receive_wakes_on_arrival_and_gives_up_in_time(shop: Shop) -> None:
    psql, waiter = shop.psql, shop.session()
    assert psql.bodies(timeout="20 ms") == []
    assert psql.refused("select broker.receive('warehouse', timeout => '-1 s')") == "S0153"
    strict = shop.session(autocommit=False)
    strict.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    assert strict.refused("select broker.receive('warehouse', timeout => '1 s')") == "S0153"
    received: list[Any] = []
    thread = threading.Thread(target=lambda: received.extend(waiter.bodies(timeout=None)))
    thread.start()
    until(lambda: waits(psql, waiter))
    psql.send(psql.dialog(), "order", b"awaited")
    thread.join(timeout=60)
    assert received == [b"awaited"]


def test_row_065_a_rolled_back_receive_gives_the_messages_back_unchanged(shop: Shop) -> None:
    psql, reader = shop.psql, shop.session(autocommit=False)
    dialog = psql.dialog()
    for body in (b"0", b"1", b"2"):
        psql.send(dialog, "order", body)
    look = "select queuing_order, message_sequence_number, message_body from broker.receive('warehouse')"
    first = reader.rows(look)
    reader.connection.rollback()
    assert reader.rows(look) == first
    assert [body for _, _, body in first] == [b"0", b"1", b"2"]


def test_rows_066_067_068_a_reader_skips_what_another_holds_and_arrivals_do_not_wait(shop: Shop) -> None:
    psql = shop.psql
    first, second = psql.dialog(), psql.dialog()
    psql.send(first, "order", b"a")
    psql.send(second, "order", b"b")
    one, two, three = shop.sessions(3)
    assert one.bodies() == [b"a"]
    psql.rows("set lock_timeout = '1 s'")
    psql.send(first, "order", b"a, while its group is held")
    assert two.bodies() == [b"b"]
    assert three.bodies() == []
    assert one.bodies() == [b"a, while its group is held"]
    one.connection.rollback()
    assert three.bodies() == [b"a", b"a, while its group is held"]


def test_row_068_a_statement_that_names_a_held_group_waits(shop: Shop) -> None:
    psql, other = shop.psql, shop.session()
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    (holder,) = shop.sessions(1)
    assert holder.bodies() == [b"0"]
    received: list[Any] = []
    thread = threading.Thread(target=lambda: received.extend(other.bodies(conversation_handle=target)))
    thread.start()
    until(lambda: waits(psql, other, "Lock"))
    assert received == []
    holder.connection.rollback()
    thread.join(timeout=60)
    assert received == [b"0"]


def test_row_069_get_conversation_group_locks_and_takes_nothing(shop: Shop) -> None:
    psql = shop.psql
    first, second = psql.dialog(), psql.dialog()
    psql.send(first, "order", b"a")
    psql.send(second, "order", b"b")
    one, two = shop.sessions(2)
    group = one.value("select broker.get_conversation_group('warehouse')")
    other_group = two.value("select broker.get_conversation_group('warehouse')")
    assert group != other_group
    assert shop.session().value("select broker.get_conversation_group('warehouse')") is None
    assert two.bodies(conversation_group_id=other_group) == [b"b"]
    assert one.bodies(conversation_group_id=group) == [b"a"]
    assert one.value("select broker.get_conversation_group('warehouse', timeout => '10 ms')") is None


def test_edge_022_a_group_locked_before_a_savepoint_stays_locked_over_its_rollback(shop: Shop) -> None:
    shop.psql.send(shop.psql.dialog(), "order", b"kept")
    reader, other = shop.sessions(2)
    reader.rows("select broker.get_conversation_group('warehouse')")
    reader.rows("savepoint attempt")
    assert reader.bodies() == [b"kept"]
    reader.rows("rollback to attempt")
    assert other.bodies() == []
    assert reader.bodies() == [b"kept"]


def test_rows_071_073_077_end_comes_after_everything_sent_and_the_rest_can_be_received(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    psql.send(target, "ack", b"unread")
    psql.end(dialog)
    assert psql.rows("select from shop") == []
    assert psql.state(dialog) is None
    assert psql.state(target) == "DI"
    assert psql.receive(top=1) == [("order", 0, b"0")]
    assert psql.receive() == [(END_DIALOG, 1, None)]
    psql.end(target)
    assert psql.state(target) == "CD"
    assert psql.refused("select broker.end_conversation(%s)", target) == "S8427"
    assert psql.rows("select from broker.transmission_queue") == []


def test_rows_074_077_086_087_an_error_overtakes_what_is_unread(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    psql.send(dialog, "order", b"1")
    target = psql.handle_of(dialog)
    end = "select broker.end_conversation(%s, "
    assert psql.refused(end + "0, 'zero')", dialog) == "S8419"
    assert psql.refused(end + "-1, 'negative')", dialog) == "S8419"
    assert psql.refused(end + "1)", dialog) == "S8422"
    assert psql.refused(end + "error_description => 'text')", dialog) == "S8424"
    psql.end(dialog, 31472, "no <stock> & no hope")
    assert psql.state(target) == "ER"
    received = psql.receive()
    assert [(kind, number) for kind, number, _ in received] == [(ERROR, 2), ("order", 0), ("order", 1)]
    error = ET.fromstring(received[0][2] or b"")
    namespace = "{http://schemas.microsoft.com/SQL/ServiceBroker/Error}"
    assert error.tag == namespace + "Error"
    assert error.findtext(namespace + "Code") == "31472"
    assert error.findtext(namespace + "Description") == "no <stock> & no hope"
    assert psql.refused("select broker.send(%s, 'ack')", target) == "S8429"
    psql.end(target)
    assert psql.state(target) == "CD"


def test_row_076_what_is_sent_while_the_far_side_ends_is_dropped(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    late = shop.session(autocommit=False)
    late.send(dialog, "order", b"late")
    psql.end(target)
    late.connection.commit()
    assert psql.bodies() == []
    assert psql.rows("select from warehouse") == []
    assert psql.value("select ready from broker.queue_depths where queue_name = 'warehouse'") == 0
    assert psql.receive("shop") == [(END_DIALOG, 0, None)]


def test_edge_038_both_sides_may_end_at_once(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    one, two = shop.sessions(2)
    one.end(dialog)
    two.end(target)
    one.connection.commit()
    two.connection.commit()
    assert psql.bodies() == psql.bodies("shop") == []
    assert (psql.state(dialog), psql.state(target)) == (None, "CD")


def test_row_075_cleanup_takes_everything_here_and_tells_nobody(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    psql.rows("select broker.end_conversation(%s, cleanup => true)", target)
    assert psql.state(target) is None
    assert psql.bodies() == psql.bodies("shop") == []
    assert psql.refused("select broker.end_conversation(%s)", target) == "S8426"


def test_row_082_transmission_status_is_empty_when_all_is_well_or_unknown(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    status = "select broker.get_transmission_status(%s)"
    assert psql.value(status, dialog) == ""
    assert psql.value(status, "00000000-0000-0000-0000-000000000000") == ""


def test_row_170_depths_are_exact_and_name_the_oldest(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[250]))", dialog)
    depths = psql.rows(
        "select queue_name, ready, is_estimate, oldest_enqueue_time is not null from broker.queue_depths order by 1"
    )
    assert depths == [("shop", 0, False, False), ("warehouse", 250, False, True)]


def test_an_ordinary_role_may_do_what_it_was_granted_and_reaches_no_table(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"secret")
    clerk = shop.database.role()
    user = shop.session(user=clerk)
    begin = "select broker.begin_dialog('//shop', '//warehouse', 'ordering')"
    assert user.refused(begin) == "S0229"
    assert user.refused("select broker.receive('warehouse')") == "S0229"
    assert user.refused("select broker.send(%s, 'order')", dialog) == "S0229"
    assert user.refused("select broker.end_conversation(%s)", dialog) == "S0229"
    assert user.refused("select broker.create_queue('mine')") == "S0229"
    assert user.refused("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', current_user)") == "S0229"
    assert (
        user.refused("select broker_private.receive('postgres', 'warehouse', 1, null, null, '0')") == "42501"
    )
    for view in ("conversation_endpoints", "conversation_groups", "transmission_queue", "queue_messages"):
        assert user.rows(f"select from broker.{view}") == []
    for (table,) in psql.rows(
        "select oid::regclass::text from pg_class where relnamespace = 'broker_private'::regnamespace and relkind in ('r', 'S', 'v')"
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            user.rows(f"select from {table}")
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s::name)", clerk)
    assert user.bodies() == [b"secret"]
    assert user.refused(begin) == "S0229"
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s::name)", clerk)
    assert user.refused(begin) == "S0229"
    psql.rows("select broker.grant('REFERENCES', 'CONTRACT', 'ordering', %s::name)", clerk)
    user.send(user.value(begin), "order", b"granted")
    psql.rows("select broker.revoke('RECEIVE', 'QUEUE', 'warehouse', %s::name)", clerk)
    assert user.refused("select broker.receive('warehouse')") == "S0229"


def test_who_calls_is_seen_through_set_role_and_an_applications_definer_function(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"0")
    application, clerk = shop.database.role("nologin"), shop.database.role()
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s::name)", application)
    psql.rows(
        f"create schema app authorization {application}; set role {application};"
        "create function app.next_order() returns bytea language sql security definer set search_path = app, pg_temp"
        " return (select message_body from broker.receive('warehouse'));"
        f"reset role; grant usage on schema app to {clerk}"
    )
    user = shop.session(user=clerk)
    assert user.refused("select broker.receive('warehouse')") == "S0229"
    assert user.value("select app.next_order()") == b"0"
    psql.rows(f"set role {clerk}")
    assert psql.refused("select broker.receive('warehouse')") == "S0229"


def test_nobody_passes_for_another_by_calling_the_inner_function(shop: Shop) -> None:
    psql, attacker = shop.psql, shop.database.role()
    psql.send(psql.dialog(), "order", b"secret")
    psql.rows(f"create schema forged authorization {attacker}")
    user = shop.session(user=attacker)
    inner = "broker_private.receive('postgres', 'warehouse', 1, null, null, '0')"
    frame = "PL/pgSQL function broker.receive(text,integer,uuid,uuid,interval) line 8 at assignment"
    user.rows(
        f'create function forged."broker.receive("() returns broker.message[] language plpgsql as'
        f" 'declare m broker.message[]; begin m := {inner.replace(chr(39), chr(39) * 2)}; return m; end'"
    )
    attempts = [
        f"select {inner}",
        f"select {inner} /*\n{frame}\n*/",
        f'select {inner} as "\n{frame}\n"',
        'select forged."broker.receive("()',
    ]
    for attempt in attempts:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            user.rows(attempt)
    assert psql.bodies() == [b"secret"]


def test_a_disk_that_is_full_leaves_the_message_where_it_was(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"safe")
    psql.rows("create table booked (body bytea)")
    psql.rows(
        "create function full_disk() returns trigger language plpgsql as"
        " 'begin raise disk_full; end'; create trigger full_disk before insert on booked"
        " for each row execute function full_disk()"
    )
    with pytest.raises(psycopg.errors.DiskFull):
        psql.rows("insert into booked select message_body from broker.receive('warehouse')")
    assert psql.bodies() == [b"safe"]


def waits(observer: Session, session: Session, kind: str = "Timeout") -> bool:
    """Tell whether PostgreSQL reports this session as waiting for a lock, or in a pause of RECEIVE."""
    query = "select wait_event_type = %s from pg_stat_activity where pid = %s"
    return bool(observer.value(query, kind, session.connection.info.backend_pid))


@pytest.fixture
def clock(shop: Shop) -> Callable[[str], None]:
    """A function that moves the clock of the shop's database; only the role that owns the schema can do that."""

    def move(offset: str) -> None:
        shop.psql.rows(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            f" begin atomic select pg_catalog.clock_timestamp() + interval '{offset}'; end"
        )

    return move


DIALOG_TIMER = "http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer"
FIRE = "select broker_private.fire_timers()"


def test_rows_083_084_086_a_timer_fires_once_on_this_side_before_all_else(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    timer = "select broker.begin_conversation_timer(%s, %s::interval)"
    psql.rows(timer, target, "10 s")
    psql.rows(timer, target, "1 min")
    clock("20 s")
    assert psql.value(FIRE) == 0
    clock("2 min")
    assert psql.value(FIRE) == 1
    assert psql.value(FIRE) == 0
    assert [kind for kind, _, _ in psql.receive()] == [DIALOG_TIMER, "order"]
    assert psql.state(target) == "CO"
    assert psql.receive("shop") == []


def test_row_085_a_timer_ends_before_the_dialog_does(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog(lifetime="1 h")
    timer = "select broker.begin_conversation_timer(%s, %s::interval)"
    assert psql.refused(timer, dialog, "2 h") == "S8410"
    assert psql.refused(timer, dialog, "0") == "S0153"
    assert psql.refused(timer, dialog, None) == "S0153"
    assert psql.refused(timer, "00000000-0000-0000-0000-000000000000", "1 s") == "S8426"
    psql.send(dialog)
    target = psql.handle_of(dialog)
    psql.end(target)
    assert psql.refused(timer, target, "1 s") == "S8458"


def test_edge_042_a_timer_waits_for_a_queue_that_is_off(shop: Shop, clock: Callable[[str], None]) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.rows("select broker.begin_conversation_timer(%s, '1 s')", dialog)
    psql.rows("select broker.alter_queue('shop', status => false)")
    clock("1 min")
    assert psql.value(FIRE) == 0
    psql.rows("select broker.alter_queue('shop', status => true)")
    assert psql.value(FIRE) == 1
    assert [kind for kind, _, _ in psql.receive("shop")] == [DIALOG_TIMER]
    psql.rows("select broker.begin_conversation_timer(%s, '1 s')", dialog)
    psql.end(dialog)
    clock("1 h")
    assert psql.value(FIRE) == 0


def test_rows_041_089_090_when_the_lifetime_is_over_both_sides_get_an_error(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    assert psql.refused("select broker.begin_dialog('//shop', '//warehouse', lifetime => '0')") == "S8411"
    dialog = psql.dialog(lifetime="1 min")
    psql.send(dialog, "order", b"in time")
    target = psql.handle_of(dialog)
    clock("2 min")
    assert psql.value(FIRE) == 2
    assert psql.value(FIRE) == 0
    for handle, queue in ((dialog, "shop"), (target, "warehouse")):
        assert psql.state(handle) == "ER"
        (kind, _, body), *rest = psql.receive(queue)
        assert kind == ERROR
        assert b"<Code>-8489</Code>" in (body or b"")
        assert [kind for kind, _, _ in rest] == (["order"] if queue == "warehouse" else [])
    assert psql.refused("select broker.send(%s, 'order')", dialog) == "S8429"
    psql.end(dialog)
    psql.end(target)
    assert (psql.state(dialog), psql.state(target)) == (None, "CD")


def test_rows_091_092_093_094_the_closest_priority_is_fixed_when_the_endpoint_is_made(shop: Shop) -> None:
    psql = shop.psql
    create = "select broker.create_broker_priority(%s, %s, %s, %s, %s)"
    contract, local, remote = "ordering", "//shop", "//warehouse"
    criteria = [
        (contract, local, remote),
        (contract, local, None),
        (contract, None, remote),
        (contract, None, None),
        (None, local, remote),
        (None, local, None),
        (None, None, remote),
        (None, None, None),
    ]
    level = "select priority from broker.conversation_endpoints where conversation_handle = %s"
    assert psql.value(level, psql.dialog()) == 5
    for place, chosen in reversed(list(enumerate(criteria, 1))):
        psql.rows(create, f"priority {place}", *chosen, place)
        assert psql.value(level, psql.dialog()) == place
    dialog = psql.dialog()
    psql.rows("select broker.alter_broker_priority('priority 1', priority_level => 9)")
    assert psql.value(level, dialog) == 1
    psql.send(dialog)
    assert psql.value(level, psql.handle_of(dialog)) == 4
    for refused in ((0,), (11,), (None,)):
        assert psql.refused(create, "p", None, None, "//other", *refused) == "S0153"
    assert psql.refused(create, "p", contract, None, None, 5) == "S2714"
    assert psql.refused(create, "p", "nothing", None, None, 5) == "S8425"
    assert psql.refused(create, "p", None, "nothing", None, 5) == "S8423"
    psql.rows("select broker.drop_broker_priority('priority 1')")
    assert psql.refused("select broker.drop_broker_priority('priority 1')") == "S0208"
    assert psql.value("select count(*) from broker.conversation_priorities") == 7


def test_rows_058_095_096_the_most_urgent_waiting_message_decides_which_group_is_received(shop: Shop) -> None:
    psql = shop.psql
    psql.rows(
        "select broker.create_broker_priority('high', remote_service_name => '//shop', priority_level => 8)"
    )
    psql.rows("select broker.create_service('//calm shop', 'shop')")
    calm = psql.value("select broker.begin_dialog('//calm shop', '//warehouse', 'ordering')")
    urgent = psql.dialog()
    psql.send(calm, "order", b"older, level 5")
    psql.send(urgent, "order", b"newer, level 8")
    look = "select priority, message_body from broker.receive('warehouse')"
    assert psql.rows(look) == [(8, b"newer, level 8")]
    assert psql.rows(look) == [(5, b"older, level 5")]
