"""Message types and contracts: rows 1 to 19 of the checklist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.shop import ERROR

if TYPE_CHECKING:
    from tests.shop import Shop


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
    # One letter by two encodings of Unicode: nobody normalizes what travels as bytes.
    psql.rows("select broker.create_message_type('caf\u00e9'), broker.create_message_type('cafe\u0301')")


def test_row_003_edge_084_none_takes_anything_and_empty_takes_no_body(shop: Shop) -> None:
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


def test_row_007_open_dialogs_follow_each_validation_of_a_type(shop: Shop) -> None:
    psql = shop.psql
    long_names = [f"{letter * 100}" for letter in "abc"]
    for name in long_names:
        psql.rows("select broker.create_message_type(%s)", name)
    psql.rows("select broker.create_contract('long', sent_by_any => %s)", long_names)
    psql.rows("select broker.create_service('//long', 'warehouse', '{long}')")
    dialogs = {
        psql.dialog(): "order",
        psql.value("select broker.begin_dialog('//shop', '//long', 'long')"): "a" * 100,
    }
    sent = 0
    for validation in ("NONE", "EMPTY", "NONE", "WELL_FORMED_XML", "EMPTY", "NONE"):
        for name in set(dialogs.values()):
            psql.rows("select broker.alter_message_type(%s, %s)", name, validation)
        # Begun while the type was validated, or while it was not.
        dialogs[psql.dialog()] = "order"
        for dialog, name in dialogs.items():
            if validation == "NONE":
                psql.send(dialog, name, b"body")
                sent += 1
            elif validation == "EMPTY":
                assert psql.refused("select broker.send(%s, %s, 'body')", dialog, name) == "S8430"
    received = 0
    while bodies := psql.bodies():
        received += len(bodies)
    assert received == sent


def test_row_008_a_type_that_a_contract_uses_is_not_dropped(shop: Shop) -> None:
    psql = shop.psql
    assert psql.refused("select broker.drop_message_type('order')") == "S3716"
    psql.rows("select broker.create_message_type('unused'), broker.drop_message_type('unused')")
    assert psql.refused("select broker.drop_message_type('unused')") == "S8428"


def test_who_takes_all_of_his_definitions_down_drops_types_after_contracts(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_message_type('return')")
    psql.rows("select broker.create_contract('returns', sent_by_any => '{return}')")
    psql.rows("select broker.drop_contract('returns'), broker.drop_message_type('return')")
    dialog = psql.dialog()
    psql.send(dialog)
    psql.rows("select broker.alter_service('//warehouse', drop_contracts => '{ordering}')")
    psql.rows("select broker.drop_contract('ordering')")
    # Both sides still have to hear of it, and one has an order to read.
    assert psql.refused("select broker.drop_message_type('order')") == "S3716"
    psql.end(dialog)
    assert psql.refused("select broker.drop_message_type('order')") == "S3716"
    assert {kind for kind, _, _ in psql.receive()} == {"order", ERROR}
    psql.rows(
        "select broker.end_conversation(conversation_handle) from broker.conversation_endpoints where state <> 'CD'"
    )
    psql.rows("select broker.drop_message_type('order')")
    assert psql.refused("select broker.begin_dialog('//shop', '//warehouse', 'ordering')") == "S8425"


def test_rows_009_014_039_the_defaults_are_default_and_default(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.value("select broker.begin_dialog('//shop', '//warehouse')")
    psql.rows("select broker.send(%s)", dialog)
    psql.rows("select broker.send(%s, 'DEFAULT', 'text')", dialog)
    assert psql.receive() == [("DEFAULT", 0, None), ("DEFAULT", 1, b"text")]
    psql.rows("select broker.send(%s)", psql.handle_of(dialog))
    assert psql.receive("shop") == [("DEFAULT", 0, None)], "both sides send it"


def test_row_010_the_14_system_message_types_are_there(shop: Shop) -> None:
    broker = "http://schemas.microsoft.com/SQL/ServiceBroker"
    events = "http://schemas.microsoft.com/SQL/Notifications"
    rows = shop.psql.rows(
        "select message_type_id, name, validation from broker.service_message_types where message_type_id < 65536 order by 1"
    )
    assert rows == [
        (1, f"{broker}/Error", "X"),
        (2, f"{broker}/EndDialog", "E"),
        (3, f"{events}/QueryNotification", "X"),
        (4, f"{events}/EventNotification", "X"),
        (5, f"{broker}/DialogTimer", "E"),
        (6, f"{broker}/BrokerConfigurationNotice/MissingRoute", "X"),
        (7, f"{broker}/BrokerConfigurationNotice/FailedRoute", "X"),
        (8, f"{broker}/BrokerConfigurationNotice/MissingRemoteServiceBinding", "X"),
        (9, f"{broker}/BrokerConfigurationNotice/FailedRemoteServiceBinding", "X"),
        (10, f"{broker}/ServiceEcho/Echo", "N"),
        (11, f"{broker}/ServiceDiagnostic/Query", "X"),
        (12, f"{broker}/ServiceDiagnostic/Status", "X"),
        (13, f"{broker}/ServiceDiagnostic/Description", "N"),
        (14, "DEFAULT", "N"),
    ]


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


def test_row_019_edge_044_dropping_a_contract_ends_its_conversations_with_an_error(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"unread")
    target = psql.handle_of(dialog)
    assert psql.refused("select broker.drop_contract('ordering')") == "S3716"
    assert psql.refused("select broker.drop_contract('DEFAULT')") == "S9663"
    psql.rows("select broker.alter_service('//warehouse', drop_contracts => '{ordering}')")
    psql.rows("select broker.create_broker_priority('p', contract_name => 'ordering')")
    assert psql.refused("select broker.drop_contract('ordering')") == "S3716", "a priority names it"
    psql.rows("select broker.drop_broker_priority('p'), broker.drop_contract('ordering')")
    assert psql.refused("select broker.begin_dialog('//shop', '//warehouse', 'ordering')") == "S8425"
    for handle, queue in ((dialog, "shop"), (target, "warehouse")):
        (kind, _, body), *rest = psql.receive(queue)
        assert (kind, b"<Code>-8487</Code>" in (body or b"")) == (ERROR, True)
        assert [body for _, _, body in rest] == ([b"unread"] if queue == "warehouse" else [])
        assert psql.refused("select broker.send(%s, 'nudge')", handle) == "S8429"
        psql.end(handle)
    psql.rows("select broker.create_contract('ordering', '{order}')")


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
