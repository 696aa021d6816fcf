"""The catalog views have SQL Server's columns, in its order, and depths cost no scan: rows 164 and 170."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.shop import Session, Shop

COLUMNS = {
    "service_message_types": "name message_type_id principal_id validation validation_desc xml_collection_id",
    "service_contracts": "name service_contract_id principal_id",
    "service_contract_message_usages": "service_contract_id message_type_id is_sent_by_initiator is_sent_by_target",
    "service_contract_usages": "service_id service_contract_id",
    "services": "name service_id principal_id service_queue_id",
    "service_queues": "name object_id principal_id schema_id parent_object_id type type_desc create_date modify_date"
    " is_ms_shipped is_published is_schema_published max_readers activation_procedure execute_as_principal_id"
    " is_activation_enabled is_receive_enabled is_enqueue_enabled is_retention_enabled is_poison_message_handling_enabled",
    "service_queue_usages": "service_id service_queue_id",
    "conversation_endpoints": "conversation_handle conversation_id is_initiator service_contract_id conversation_group_id"
    " service_id lifetime state state_desc far_service far_broker_instance principal_id far_principal_id"
    " outbound_session_key_identifier inbound_session_key_identifier security_timestamp dialog_timer send_sequence"
    " last_send_tran_id end_dialog_sequence receive_sequence receive_sequence_frag system_sequence"
    " first_out_of_order_sequence last_out_of_order_sequence last_out_of_order_frag is_system priority",
    "conversation_groups": "conversation_group_id service_id is_system",
    "conversation_priorities": "priority_id name service_contract_id local_service_id remote_service_name priority",
    "transmission_queue": "conversation_handle to_service_name to_broker_instance from_service_name service_contract_name"
    " enqueue_time message_sequence_number message_type_name is_conversation_error is_end_of_dialog message_body"
    " transmission_status priority",
    "routes": "name route_id principal_id remote_service_name broker_instance lifetime address mirror_address",
    "remote_service_bindings": "name remote_service_binding_id principal_id remote_service_name service_contract_id"
    " remote_principal_id is_anonymous_on",
    "service_broker_endpoints": "name endpoint_id principal_id protocol protocol_desc type type_desc state state_desc"
    " is_admin_endpoint is_message_forwarding_enabled message_forwarding_size connection_auth connection_auth_desc"
    " certificate_id encryption_algorithm encryption_algorithm_desc",
    "certificates": "name certificate_id principal_id thumbprint",
    "message_type_xml_schema_collection_usages": "message_type_id xml_collection_id",
    "databases": "service_broker_guid is_broker_enabled is_broker_priority_honored",
}
MANAGEMENT = {
    "dm_broker_queue_monitors": "database_id queue_id state last_empty_rowset_time last_activated_time tasks_waiting",
    "dm_broker_activated_tasks": "spid database_id queue_id procedure_name execute_as",
}


@pytest.mark.parametrize("view", MANAGEMENT)
def test_row_165_a_management_view_has_the_columns_of_sql_server_in_their_order(
    shop: Shop, view: str
) -> None:
    shown = shop.psql.value(
        "select string_agg(attname, ' ' order by attnum) from pg_attribute where attrelid = %s::regclass and attnum > 0",
        f"broker.{view}",
    )
    assert shown.startswith(MANAGEMENT[view])


@pytest.mark.parametrize("view", COLUMNS)
def test_row_164_a_view_has_the_columns_of_sql_server_in_their_order(shop: Shop, view: str) -> None:
    expected = COLUMNS[view].split()
    shown = [
        name
        for (name,) in shop.psql.rows(
            "select attname::text from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum",
            f"broker.{view}",
        )
    ]
    assert [name for name in shown if name in expected] == expected


def test_row_164_the_endpoints_show_the_next_number_to_send_and_to_receive(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    numbers = "select send_sequence, receive_sequence from broker.conversation_endpoints where conversation_handle = %s"
    assert psql.rows(numbers, dialog) == [(0, 0)]
    for _ in range(3):
        psql.send(dialog)
    target = psql.handle_of(dialog)
    psql.receive(top=2)
    psql.send(target, "ack")
    assert psql.rows(numbers, dialog) == [(3, 1)]
    assert psql.rows(numbers, target) == [(1, 3)]
    waiting = psql.value("select broker.begin_dialog('//shop', '//nowhere', 'ordering')")
    psql.send(waiting)
    assert psql.rows(numbers, waiting) == [(1, 0)]


def test_row_164_a_certificate_is_shown_by_its_thumbprint(shop: Shop) -> None:
    content = b"0" + bytes(200)
    pem = f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(content).decode()}-----END CERTIFICATE-----\n"
    shop.psql.rows("select broker.create_certificate('far', %s, 'far worker')", pem)
    assert shop.psql.rows("select name, principal_id, thumbprint from broker.certificates") == [
        ("far", "far worker", hashlib.sha256(content).digest())
    ]


def test_row_170_the_depths_of_transmission_and_endpoints_are_counted_without_a_scan(shop: Shop) -> None:
    psql = shop.psql
    depths = "select name, depth, oldest_enqueue_time is not null, is_estimate from broker.depths order by 1"
    assert psql.rows(depths) == [
        ("conversation_endpoints", 0, False, False),
        ("transmission_queue", 0, False, False),
    ]
    dialog = psql.value("select broker.begin_dialog('//shop', '//nowhere', 'ordering')")
    psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[250]))", dialog)
    assert psql.rows(depths) == [
        ("conversation_endpoints", 1, False, False),
        ("transmission_queue", 250, True, False),
    ]
    # What is over on this side is kept for a while, and no view shows it.
    for _ in range(2):
        over = psql.dialog()
        psql.send(over)
        psql.end(psql.handle_of(over))
        psql.end(over)
    while psql.value("select broker_private.sweep()"):
        pass
    shown = psql.value("select count(*) from broker.conversation_endpoints")
    assert psql.rows(depths)[0] == ("conversation_endpoints", shown, False, False)
    assert psql.value("select count(*) from broker_private.endpoints") > shown
    clerk = shop.database.role()
    user = shop.session(user=clerk)
    assert user.rows(depths) == []
    psql.rows(f"grant pg_monitor to {clerk}")
    assert len(user.rows(depths)) == 2
    psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[10000]))", dialog)
    ((depth, is_estimate),) = psql.rows(
        "select depth, is_estimate from broker.depths where name = 'transmission_queue'"
    )
    assert depth > 10000
    assert is_estimate


def test_row_170_the_depth_of_a_long_queue_costs_no_scan_of_it(shop: Shop) -> None:
    psql = shop.psql
    for _ in range(3):
        psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[4000]))", psql.dialog())
    ((depth, is_estimate),) = psql.rows(
        "select ready, is_estimate from broker.queue_depths where queue_name = 'warehouse'"
    )
    assert depth > 10000
    assert is_estimate
    for statistics in ("select", "analyze broker_private.messages"):
        psql.rows(statistics)
        plan = [line for (line,) in psql.rows("explain select ready from broker.queue_depths")]
        reads = [line for line in plan if " on messages m" in line]
        assert reads
        assert all(re.search("Index (Only )?Scan (Backward )?using", line) for line in reads), plan


def test_row_166_what_goes_into_queues_and_to_other_databases_is_counted(shop: Shop) -> None:
    psql = shop.psql

    def counted(session: Session) -> dict[str, int]:
        # A session's statistics arrive when it is idle, or has asked for it.
        psql.rows("select pg_stat_force_next_flush()")
        return dict(
            session.rows(
                "select counter_name, cntr_value from broker.dm_os_performance_counters"
                " where object_name = 'SQLServer:Broker Statistics' and instance_name = current_database()"
            )
        )

    near = psql.dialog()
    far = psql.value("select broker.begin_dialog('//shop', '//nowhere', 'ordering')")
    before = counted(psql)
    psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[5]))", near)
    psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[3]))", far)
    after = counted(psql)
    assert {name: after[name] - before[name] for name in after} == {
        "Enqueued Messages Total": 5,
        "Enqueued Messages/sec": 5,
        "Enqueued Transmission Msgs/sec": 3,
        "Dequeued Transmission Msgs/sec": 0,
        "Forwarded Pending Msg Count": 0,
    }
    psql.rows("select broker.end_conversation(%s, cleanup => true)", far)
    assert counted(psql)["Dequeued Transmission Msgs/sec"] - after["Dequeued Transmission Msgs/sec"] == 3
    clerk = shop.database.role()
    user = shop.session(user=clerk)
    assert counted(user) == {}
    psql.rows(f"grant pg_monitor to {clerk}")
    assert counted(user)["Enqueued Messages Total"] == after["Enqueued Messages Total"]
