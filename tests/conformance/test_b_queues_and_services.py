"""Queues and services: rows 20 to 35 of the checklist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.shop import ERROR

if TYPE_CHECKING:
    from tests.shop import Shop


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
    assert " ".join(name for name, _ in columns[:15]) == (
        "status priority queuing_order conversation_group_id conversation_handle message_sequence_number service_name"
        " service_id service_contract_name service_contract_id message_type_name message_type_id validation message_body"
        " message_id"
    )
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


def test_rows_021_022_023_046_edge_050_a_queue_that_is_off_takes_and_gives_nothing(shop: Shop) -> None:
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


def test_rows_024_025_looking_at_a_queue_takes_nothing_and_nobody_writes_it(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"seen")
    look = "select status, message_sequence_number, message_body, service_name, validation from warehouse"
    assert psql.rows(look) == psql.rows(look) == [(1, 0, b"seen", "//warehouse", "N")]
    for write in (
        "insert into warehouse default values",
        "update warehouse set status = 1",
        "delete from warehouse",
        "truncate warehouse",
        "create index on warehouse (status)",
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
    ((kind, _, body),) = psql.receive("shop")
    assert (kind, b"<Code>-8408</Code>" in (body or b"")) == (ERROR, True)
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


def test_row_029_services_share_a_queue_and_are_told_apart_by_name(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_service('//returns', 'warehouse', '{ordering}')")
    for service in ("//warehouse", "//returns"):
        dialog = psql.value("select broker.begin_dialog('//shop', %s, 'ordering')", service)
        psql.send(dialog, "order", service.encode())
    look = (
        "select service_name, convert_from(message_body, 'UTF8'), r.service_id = s.service_id"
        " from broker.receive('warehouse') r join broker.services s on s.name = r.service_name"
    )
    assert psql.rows(look) == [("//warehouse", "//warehouse", True)]
    assert psql.rows(look) == [("//returns", "//returns", True)]


def test_row_030_every_option_of_a_queue_changes_while_it_runs(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("create procedure work() language plpgsql as 'begin end'")
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")

    def options() -> tuple[object, ...]:
        (row,) = psql.rows(
            "select is_receive_enabled, is_enqueue_enabled, is_poison_message_handling_enabled,"
            " activation_procedure is not null, max_readers, is_activation_enabled, execute_as_principal_id is not null"
            " from broker.service_queues where name = 'warehouse'"
        )
        return row

    alter = "select broker.alter_queue('warehouse', "
    assert options() == (True, True, True, False, None, False, False)
    psql.rows(alter + "poison_message_handling => false)")
    psql.rows(alter + "watchdog => '5 min')")
    psql.rows(alter + "activation_procedure => 'work', max_queue_readers => 2)")
    assert options() == (True, True, False, True, 2, True, True)
    psql.rows(alter + "activation_status => false)")
    psql.rows(alter + "max_queue_readers => 5)")
    assert options() == (True, True, False, True, 5, False, True)
    psql.rows(alter + "drop_activation => true)")
    psql.rows(alter + "status => false)")
    assert options() == (False, False, False, False, None, False, False)
    psql.rows(alter + "status => true, poison_message_handling => true)")
    assert options() == (True, True, True, False, None, False, False)
    ours = "select is_retention_enabled, poison_action, scaling, watchdog::text from broker.service_queues where name = 'warehouse'"
    assert psql.rows(ours) == [(False, "DISABLE_QUEUE", "SERVICE_BROKER", "00:05:00")]
    psql.rows(
        alter + "retention => true, poison_action => 'QUARANTINE', scaling => 'BACKLOG', watchdog => '0')"
    )
    assert psql.rows(ours) == [(True, "QUARANTINE", "BACKLOG", "00:00:00")]
    assert psql.bodies() == [b"0"]


def test_row_030_a_queue_gets_another_owner_and_its_view_another_schema(shop: Shop) -> None:
    psql, clerk = shop.psql, shop.database.role()
    psql.rows(
        f"create schema office; create table office.taken (); create schema closed; grant usage on schema office, closed to {clerk}"
    )
    psql.rows("select broker.create_queue('taken')")
    psql.send(psql.dialog(), "order", b"0")
    alter = "select broker.alter_queue('warehouse', "
    assert psql.refused("select broker.alter_queue('taken', schema => 'office')") == "S2714"
    psql.rows(alter + "schema => 'office')")
    psql.rows(alter + "retention => true)")
    assert psql.rows("select message_body from office.warehouse") == [(b"0",)]
    assert psql.value("select to_regclass('public.warehouse')") is None
    user = shop.session(user=clerk)
    assert user.refused(alter + "owner => current_user)") == "S0229"
    psql.rows(alter + f"owner => '{clerk}')")
    assert user.bodies() == [b"0"], "the owner receives"
    assert user.refused(alter + "owner => 'postgres')") == "S0229", "he is no member of that role"
    assert user.refused(alter + "schema => 'closed')") == "S0229", "he may create nothing there"
    psql.rows("select broker.drop_service('//warehouse'), broker.drop_queue('warehouse')")
    assert psql.value("select to_regclass('office.warehouse')") is None


def test_row_031_a_queue_is_not_dropped_under_its_services(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue('dock'), broker.create_service('//dock', 'dock')")
    assert psql.refused("select broker.drop_queue('dock')") == "S3716"
    psql.rows("select broker.drop_service('//dock'), broker.drop_queue('dock')")
    assert psql.refused("select broker.drop_queue('dock')") == "S0208"
    assert psql.refused("select broker.receive('dock')") == "S0208"
    assert psql.value("select to_regclass('dock')") is None
