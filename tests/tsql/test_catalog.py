"""SQL Server's catalog views are there with their columns, on each PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pybroker.tsql import catalog
from pybroker.tsql.expressions.system import BOOLEAN, SYSTEM

if TYPE_CHECKING:
    from tests.conftest import Database
    from tests.shop import Shop

COLUMNS = {
    "conversation_endpoints": "conversation_handle conversation_id is_initiator service_contract_id conversation_group_id"
    " service_id lifetime state state_desc far_service far_broker_instance principal_id far_principal_id"
    " outbound_session_key_identifier inbound_session_key_identifier security_timestamp dialog_timer send_sequence"
    " last_send_tran_id end_dialog_sequence receive_sequence receive_sequence_frag system_sequence"
    " first_out_of_order_sequence last_out_of_order_sequence last_out_of_order_frag is_system priority",
    "conversation_groups": "conversation_group_id service_id is_system",
    "conversation_priorities": "priority_id name service_contract_id local_service_id remote_service_name priority",
    "databases": "name database_id service_broker_guid is_broker_enabled is_broker_priority_honored",
    "endpoints": "name endpoint_id principal_id protocol protocol_desc type type_desc state state_desc is_admin_endpoint",
    "event_notifications": "name object_id parent_class parent_class_desc parent_id create_date modify_date is_ms_shipped"
    " principal_id service_name broker_instance",
    "events": "object_id type_desc is_trigger_event event_group_type event_group_type_desc",
    "objects": "name object_id principal_id schema_id parent_object_id type type_desc create_date modify_date is_ms_shipped",
    "remote_service_bindings": "name remote_service_binding_id principal_id remote_service_name service_contract_id"
    " remote_principal_id is_anonymous_on",
    "routes": "name route_id principal_id remote_service_name broker_instance lifetime address mirror_address",
    "schemas": "name schema_id principal_id",
    "service_broker_endpoints": "name endpoint_id is_message_forwarding_enabled message_forwarding_size connection_auth"
    " certificate_id encryption_algorithm",
    "service_contract_message_usages": "service_contract_id message_type_id is_sent_by_initiator is_sent_by_target",
    "service_contract_usages": "service_id service_contract_id",
    "service_contracts": "name service_contract_id principal_id",
    "service_message_types": "name message_type_id principal_id validation validation_desc xml_collection_id",
    "service_queue_usages": "service_id service_queue_id",
    "service_queues": "name object_id principal_id schema_id parent_object_id type type_desc create_date modify_date"
    " is_ms_shipped is_published is_schema_published max_readers activation_procedure execute_as_principal_id"
    " is_activation_enabled is_receive_enabled is_enqueue_enabled is_retention_enabled"
    " is_poison_message_handling_enabled",
    "services": "name service_id principal_id service_queue_id",
    "transmission_queue": "conversation_handle to_service_name to_broker_instance from_service_name service_contract_name"
    " enqueue_time message_sequence_number message_type_name is_conversation_error is_end_of_dialog message_body"
    " transmission_status priority",
    "dm_broker_queue_monitors": "database_id queue_id state last_empty_rowset_time last_activated_time tasks_waiting",
    "dm_broker_activated_tasks": "spid database_id queue_id procedure_name execute_as",
    "dm_broker_forwarded_messages": "conversation_id is_initiator to_service_name to_broker_instance from_service_name"
    " from_broker_instance adjacent_broker_address message_sequence_number message_fragment_number hops_remaining"
    " time_to_live time_consumed message_id",
}


def columns_of(database: Database, view: str) -> list[str]:
    with database.connect() as session:
        cursor = session.execute(f"select * from {catalog.relation(view)} v".encode())
        cursor.fetchall()
        return [column.name for column in cursor.description or ()]


def test_each_view_can_be_read_and_has_its_columns(any_database: Database) -> None:
    for view in catalog.names():
        found = columns_of(any_database, view.upper())
        missing = set(COLUMNS.get(view, "name" if "name" in found else "").split()) - set(found)
        assert not missing, view
    assert set(COLUMNS) <= set(catalog.names())


def test_each_flag_of_a_view_is_known_to_be_a_bit(database: Database) -> None:
    flags = set()
    with database.connect() as session:
        for view in catalog.names():
            cursor = session.execute(f"select * from {catalog.relation(view)} v".encode())
            flags |= {one.name for one in cursor.description or () if one.type_display == "bool"}
    assert "is_initiator" in flags
    assert {name for name in flags if SYSTEM.get(name) is not BOOLEAN} == set()


def test_no_view_has_a_moment_that_depends_on_who_looks(database: Database) -> None:
    with database.connect() as session:
        for view in catalog.names():
            cursor = session.execute(f"select * from {catalog.relation(view)} v".encode())
            assert "timestamptz" not in {one.type_display for one in cursor.description or ()}, view


def test_a_conversations_moments_are_in_utc_and_definitions_dates_local(shop: Shop) -> None:
    shop.psql.rows("set time zone 'Pacific/Auckland'")
    handle = shop.psql.rows(
        "select broker.begin_dialog('//shop', 'nowhere', 'ordering', lifetime => '1 hour')"
    )[0][0]
    shop.psql.rows(f"select broker.send('{handle}', 'order')")
    shop.psql.rows(f"select broker.begin_conversation_timer('{handle}', '30 min')")
    shop.psql.rows("select broker.create_route('late', address => 'LOCAL', lifetime => '1 hour')")
    for view, columns in {
        "conversation_endpoints": ("lifetime", "dialog_timer"),
        "transmission_queue": ("enqueue_time",),
        "routes": ("lifetime",),
    }.items():
        for column in columns:
            moment = f"(b.{column} at time zone 'UTC')::timestamp(3)"
            found = shop.psql.rows(
                f"select count(*) from {catalog.relation(view)} v, broker.{view} b where v.{column} = {moment}"
            )
            assert found == [(1,)], (view, column)
    queues = catalog.relation("service_queues")
    same = "v.name = b.name and v.create_date = (b.create_date at time zone 'Pacific/Auckland')::timestamp(3)"
    assert shop.psql.rows(
        f"select count(*) = (select count(*) from broker.service_queues)"
        f" from {queues} v join broker.service_queues b on {same}"
    ) == [(True,)]


def test_a_view_that_is_not_there_is_not_made_up() -> None:
    assert catalog.relation("dm_exec_query_stats") is None


def test_objects_are_found_by_name_and_type(shop: Shop) -> None:
    shop.psql.rows("create table trades (id integer)")
    shop.psql.rows("create procedure book() language sql begin atomic; end")
    objects = catalog.relation("objects")
    for name, kind in (("trades", "U"), ("book", "P"), ("warehouse", "SQ")):
        found = shop.psql.rows(f"select type, type_desc is not null from {objects} o where name = '{name}'")
        assert found == [(kind, True)]
    for view, name in (("tables", "trades"), ("procedures", "book")):
        assert shop.psql.rows(f"select name from {catalog.relation(view)} v") == [(name,)]


def test_a_queue_is_found_with_its_schema(shop: Shop) -> None:
    shop.psql.rows('create schema "Mixed"')
    shop.psql.rows("select broker.create_queue('mine', schema => 'Mixed')")
    queues, schemas = catalog.relation("service_queues"), catalog.relation("schemas")
    joined = (
        f"select s.name from {queues} q join {schemas} s on s.schema_id = q.schema_id where q.name = 'mine'"
    )
    assert shop.psql.rows(joined) == [("Mixed",)]
    objects = catalog.relation("objects")
    found = (
        f"select s.name from {objects} o join {schemas} s on s.schema_id = o.schema_id where o.name = 'mine'"
    )
    assert shop.psql.rows(found) == [("Mixed",)]


def test_the_whitepaper_counts_the_transmission_queue_by_its_partition(shop: Shop) -> None:
    objects, partitions = catalog.relation("objects"), catalog.relation("partitions")
    count = (
        f"select p.rows from {objects} o join {partitions} p on p.object_id = o.object_id and p.index_id = 1"
        " where o.name = 'sysxmitqueue'"
    )
    assert shop.psql.rows(count) == [(0,)]
    shop.psql.rows("select broker.send(broker.begin_dialog('//shop', 'nowhere', 'ordering'), 'order')")
    assert shop.psql.rows(count) == [(1,)]


@pytest.mark.parametrize("named", [True, False])
def test_databases_are_those_of_the_session_or_this_one(shop: Shop, named: bool) -> None:
    if named:
        row = '[{"name": "Shop", "database_id": 5, "is_broker_enabled": true}]'
        shop.psql.rows(f"set pybroker_tsql.databases = '{row}'")
    found = shop.psql.rows(
        f"select name, is_broker_enabled from {catalog.relation('databases')} d order by name"
    )
    expected = [("Shop", True)] if named else [(shop.database.name, True)]
    assert sorted(found) == sorted(expected)
