"""Priorities: rows 91 to 99 of the checklist."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.shop import Shop


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
    alter = "select broker.alter_broker_priority('priority 1', "
    shown = (
        "select service_contract_id is null, local_service_id is null, remote_service_name"
        " from broker.conversation_priorities where name = 'priority 1'"
    )
    psql.rows(alter + "contract_name => null, local_service_name => null, remote_service_name => '//other')")
    assert psql.rows(shown) == [(False, False, "//other")], "NULL leaves a criterion as it is"
    psql.rows(alter + "contract_name => '', local_service_name => '')")
    assert psql.rows(shown) == [(True, True, "//other")], "'' makes it ANY"
    assert psql.refused(alter + "remote_service_name => '')") == "S2714", "priority 8 is for ANY of all three"
    psql.rows(
        alter
        + "contract_name => 'ordering', local_service_name => '//shop', remote_service_name => '//warehouse')"
    )
    for refused in ((0,), (11,), (None,)):
        assert psql.refused(create, "p", None, None, "//other", *refused) == "S0153"
    assert psql.refused(create, "p", contract, None, None, 5) == "S2714"
    assert psql.refused(create, "p", "nothing", None, None, 5) == "S8425"
    assert psql.refused(create, "p", None, "nothing", None, 5) == "S8423"
    psql.rows("select broker.drop_broker_priority('priority 1')")
    assert psql.refused("select broker.drop_broker_priority('priority 1')") == "S0208"
    assert psql.value("select count(*) from broker.conversation_priorities") == 7


def test_row_095_a_group_is_as_urgent_as_its_conversations_that_have_messages_now(shop: Shop) -> None:
    psql = shop.psql
    psql.rows(
        "select broker.create_service('//express', 'shop'), broker.create_service('//calm', 'shop');"
        " select broker.create_broker_priority('express', remote_service_name => '//express', priority_level => 9),"
        " broker.create_broker_priority('calm', remote_service_name => '//calm', priority_level => 2)"
    )
    begin = "select broker.begin_dialog(%s, '//warehouse', 'ordering')"
    calm, express, usual = (psql.value(begin, service) for service in ("//calm", "//express", "//shop"))
    for dialog in (calm, express):
        psql.send(dialog, "order", b"opens")
        assert psql.bodies() == [b"opens"]
    psql.rows(
        "select broker.move_conversation(%s, conversation_group_id) from broker.conversation_endpoints"
        " where conversation_handle = %s",
        psql.handle_of(express),
        psql.handle_of(calm),
    )
    psql.send(calm, "order", b"level 2, of the group")
    psql.send(usual, "order", b"level 5, alone")
    psql.send(express, "order", b"level 9, of the group")
    look = "select priority, message_body from broker.receive('warehouse', top => 1)"
    assert psql.rows(look) == [(9, b"level 9, of the group")], "its most urgent message decides"
    assert psql.rows(look) == [(5, b"level 5, alone")], "what the group has left is less urgent"
    psql.send(express, "order", b"again")
    assert psql.rows("select priority, message_body from broker.receive('warehouse')") == [
        (9, b"again"),
        (2, b"level 2, of the group"),
    ], "the group comes whole"


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
    group = "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s"
    urgent_group = psql.value(group, psql.handle_of(urgent))
    assert psql.value("select broker.get_conversation_group('warehouse')") == urgent_group
    assert psql.rows(look) == [(8, b"newer, level 8")]
    assert psql.rows(look) == [(5, b"older, level 5")]
