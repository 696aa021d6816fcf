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
    psql.rows("select broker_private.deliver_local()")
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
        assert psql.refused("select broker.send(%s)", handle) == "S8429"
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


COLUMNS = {
    "service_message_types": "name message_type_id principal_id validation validation_desc",
    "service_contracts": "name service_contract_id principal_id",
    "service_contract_message_usages": "service_contract_id message_type_id is_sent_by_initiator is_sent_by_target",
    "service_contract_usages": "service_id service_contract_id",
    "services": "name service_id principal_id service_queue_id",
    "service_queues": (
        "name max_readers activation_procedure execute_as_principal_id is_activation_enabled is_receive_enabled"
        " is_enqueue_enabled is_retention_enabled is_poison_message_handling_enabled"
    ),
    "service_queue_usages": "service_id service_queue_id",
    "conversation_endpoints": (
        "conversation_handle conversation_id is_initiator service_contract_id conversation_group_id service_id lifetime"
        " state state_desc far_service far_broker_instance principal_id dialog_timer is_system priority"
    ),
    "conversation_groups": "conversation_group_id service_id is_system",
    "conversation_priorities": (
        "priority_id name service_contract_id local_service_id remote_service_name priority"
    ),
    "transmission_queue": (
        "conversation_handle to_service_name to_broker_instance from_service_name service_contract_name enqueue_time"
        " message_sequence_number message_type_name is_conversation_error is_end_of_dialog message_body"
        " transmission_status priority"
    ),
    "routes": (
        "name route_id principal_id remote_service_name broker_instance lifetime address mirror_address"
    ),
    "service_broker_endpoints": "name endpoint_id is_message_forwarding_enabled message_forwarding_size certificate_id",
    "databases": "service_broker_guid is_broker_enabled is_broker_priority_honored",
}


def test_row_164_the_catalog_views_have_the_columns_that_a_user_knows(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog())
    shown = dict(
        psql.rows(
            "select relname, array_agg(attname::text) from pg_class c join pg_attribute a on a.attrelid = c.oid"
            " where relnamespace = 'broker'::regnamespace and relkind = 'v' and attnum > 0 group by 1"
        )
    )
    for view, columns in COLUMNS.items():
        assert set(columns.split()) <= set(shown[view]), view
        psql.rows(f"select * from broker.{view}")
    conversation = psql.rows(
        "select e.is_initiator, s.name, c.name, g.service_id = s.service_id, q.name"
        " from broker.conversation_endpoints e"
        " join broker.services s using (service_id)"
        " join broker.service_contracts c using (service_contract_id)"
        " join broker.conversation_groups g using (conversation_group_id)"
        " join broker.service_queue_usages u on u.service_id = s.service_id"
        " join broker.service_queues q on q.object_id = u.service_queue_id order by 1"
    )
    assert conversation == [
        (False, "//warehouse", "ordering", True, "warehouse"),
        (True, "//shop", "ordering", True, "shop"),
    ]
