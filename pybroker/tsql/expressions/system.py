"""The columns of the catalog views, by name; a name has one type in all views but those of OWN."""

from __future__ import annotations

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.types import Family, Type

# PostgreSQL's views have booleans where SQL Server has bits.
BOOLEAN = Type("boolean", Family.BIT)
# Not "state", which is a text in some views and a number in others.
_TEXTS = """
    activation_procedure address counter_name far_service from_service_name instance_name
    message_type_name name object_name procedure_name remote_service_name service_contract_name
    service_name state_desc to_service_name transmission_status type type_desc validation
    validation_desc
"""
_HANDLES = """
    broker_instance conversation_group_id conversation_handle conversation_id far_broker_instance
    message_id service_broker_guid to_broker_instance
"""
_BITS = """
    is_accept is_activation_enabled is_active_for_begin_dialog is_admin_endpoint is_anonymous_on
    is_broker_enabled is_broker_priority_honored is_computed is_conversation_error is_dynamic_port
    is_encrypted is_end_of_dialog is_enqueue_enabled is_event_logged is_fan_in is_fixed_role
    is_honor_broker_priority_on is_identity is_initiator is_message_forwarding_enabled is_ms_shipped
    is_nullable is_poison_message_handling_enabled is_published is_receive_enabled is_receive_flow_controlled
    is_retention_enabled is_schema_published is_send_flow_controlled is_sent_by_initiator
    is_sent_by_target is_system is_trigger_event is_trustworthy_on is_user_process
"""
_NUMBERS = """
    cntr_value column_id database_id max_readers message_sequence_number message_type_id object_id
    principal_id priority queue_id queuing_order receive_sequence rows send_sequence service_contract_id
    service_id spid tasks_waiting
"""
_MOMENTS = """
    connect_time create_date dialog_timer enqueue_time last_activated_time last_activity_time
    last_empty_rowset_time lifetime login_time modify_date security_timestamp
"""
SYSTEM: dict[str, Type] = {
    **dict.fromkeys(_TEXTS.split(), types.TEXT),
    **dict.fromkeys(_HANDLES.split(), types.UUID),
    **dict.fromkeys(_BITS.split(), BOOLEAN),
    **dict.fromkeys(_NUMBERS.split(), types.BIGINT),
    **dict.fromkeys(_MOMENTS.split(), types.DATETIME),
    "message_body": types.BINARY,
}
# In these views a name matches exactly, in all others in any case.
EXACT = frozenset({"service_contracts", "service_message_types", "services"})
# Of views in which a name has another type than in all others, or that no other has.
OWN: dict[str, dict[str, Type]] = {
    "dm_exec_sessions": {
        "session_id": types.INTEGER,
        "login_time": types.DATETIME,
        "host_name": types.TEXT,
        "program_name": types.TEXT,
        "status": types.TEXT,
        "login_name": types.TEXT,
        "original_login_name": types.TEXT,
        "database_id": types.BIGINT,
        "last_request_start_time": types.DATETIME,
        "open_transaction_count": types.INTEGER,
        "is_user_process": BOOLEAN,
    },
    "messages": {
        "message_id": types.INTEGER,
        "language_id": types.INTEGER,
        "severity": types.INTEGER,
        "is_event_logged": BOOLEAN,
        "text": types.TEXT,
    },
}
