"""What a user types stays as it is: names of functions, of arguments and of columns, their order, and their defaults."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Database

OPTIONS = "status retention activation_procedure max_queue_readers activation_status execute_as poison_message_handling"
PRIORITY = "name contract_name=NULL local_service_name=NULL remote_service_name=NULL priority_level"
PERMISSION = "permission securable_class securable_name role"
DROPPED = "message_type schema_collection contract queue service route remote_service_binding certificate endpoint broker_priority"
SEND = ["{} message_type='DEFAULT' body='\\x'", *["{} message_type body"] * 3]

# An argument without = must be given.
FUNCTIONS = {
    "create_message_type": ["name validation='NONE' schema_collection=NULL owner=NULL"],
    "alter_message_type": ["name validation schema_collection=NULL"],
    "create_schema_collection": ["name documents"],
    "create_contract": ["name sent_by_initiator='{}' sent_by_target='{}' sent_by_any='{}' owner=NULL"],
    "create_queue": [
        "name status=true retention=false activation_procedure=NULL max_queue_readers=NULL activation_status=true"
        " execute_as='SELF' poison_message_handling=true poison_action='DISABLE_QUEUE' scaling='SERVICE_BROKER'"
        " watchdog='00:01:00' owner=NULL schema=current_schema()"
    ],
    "alter_queue": [
        f"name {' '.join(f'{option}=NULL' for option in OPTIONS.split())} poison_action=NULL scaling=NULL watchdog=NULL"
        " owner=NULL schema=NULL drop_activation=false"
    ],
    "create_service": ["name queue contracts='{}' owner=NULL"],
    "alter_service": ["name queue=NULL add_contracts='{}' drop_contracts='{}'"],
    "create_route": [
        "name address service_name=NULL broker_instance=NULL lifetime=NULL mirror_address=NULL owner=NULL scope='DATABASE'"
    ],
    "create_remote_service_binding": ["name to_service user_name anonymous=false owner=NULL"],
    "alter_remote_service_binding": ["name user_name=NULL anonymous=NULL"],
    "create_certificate": ["name certificate_pem user_name active_for_begin_dialog=true"],
    "alter_certificate": ["name active_for_begin_dialog"],
    "alter_authorization": ["securable_class name owner"],
    "create_endpoint": [
        "name listener_port state='STOPPED' listener_ip='ALL' certificate=NULL encryption='REQUIRED'"
        " message_forwarding=false message_forward_size=10"
    ],
    "create_broker_priority": [f"{PRIORITY}=5"],
    "alter_broker_priority": [f"{PRIORITY}=NULL"],
    "create_event_notification": ["name queue event to_service broker_instance=NULL fan_in=false"],
    "grant": [PERMISSION],
    "revoke": [PERMISSION],
    "alter_broker": ["action=NULL honor_broker_priority=NULL"],
    "begin_dialog": [
        "from_service to_service contract='DEFAULT' broker_instance=NULL related_conversation=NULL"
        " related_conversation_group=NULL lifetime=NULL encryption=true"
    ],
    "send": [arguments.format("conversation_handle") for arguments in SEND],
    "send_all": [arguments.format("conversation_handles") for arguments in SEND],
    "send_batch": ["conversation_handle message_type bodies"],
    "receive": ["queue top=NULL conversation_handle=NULL conversation_group_id=NULL timeout='00:00:00'"],
    "receive_groups": ["queue max_groups top=NULL timeout='00:00:00'"],
    "get_conversation_group": ["queue timeout='00:00:00'"],
    "move_conversation": ["conversation_handle conversation_group_id"],
    "end_conversation": ["conversation_handle error_code=NULL error_description=NULL cleanup=false"],
    "begin_conversation_timer": ["conversation_handle timeout"],
    "get_transmission_status": ["conversation_handle"],
    "redrive": ["conversation_handle"],
    "redrive_due": ["queue"],
    "announce_program": ["program_id queue max_queue_readers host process_id"],
    "discard": ["conversation_handle"],
    "diagnose": ["conversation_handle=NULL"],
    "start_trace": ["conversation_handle=NULL service=NULL duration='00:10:00' max_rows=10000"],
    "stop_trace": [""],
    "note_console_action": ["action object result"],
    "query_service": ["from_service to_service contract=NULL conversation_id=NULL encryption=true"],
    "read_status": ["conversation_handle"],
    "peek": ["queue top=50 after_priority=NULL after_order=NULL body_bytes=0"],
    "queue_groups": ["queue"],
    "get_traceparent": ["message"],
    **{f"drop_{kind}": ["name"] for kind in DROPPED.split()},
    "drop_event_notification": ["name queue=NULL"],
}

# Those that are SQL Server's are in tests/conformance/test_k_views.py.
OWN_COLUMNS = {
    "message": "status priority queuing_order conversation_group_id conversation_handle message_sequence_number service_name"
    " service_id service_contract_name service_contract_id message_type_name message_type_id validation message_body"
    " message_id message_enqueue_time",
    "queue_depths": "queue_name ready retained incomplete oldest_enqueue_time is_estimate",
    "databases": "name service_broker_guid is_broker_enabled is_broker_priority_honored",
    "routes": "scope",
    "service_queues": "poison_action scaling watchdog",
    "depths": "name depth oldest_enqueue_time is_estimate",
    "quarantine": "conversation_handle conversation_group_id queue_name service_name far_service message_type_name"
    " message_body message_enqueue_time failures last_error quarantined_at messages_waiting retry_at retries",
    "service_programs": "queue_name host process_id max_queue_readers started_at last_seen is_alive",
    "activation_log": "id queue_name procedure_name time spid number severity text sqlstate detail",
    "trace": "id event_time event_class event_subclass conversation_handle conversation_id is_initiator service_name"
    " far_service message_type_name message_sequence_number message_size status login_name spid traced_by",
    "traceparents": "conversation_handle conversation_id queuing_order noted_at traceparent",
    "console_actions": "id acted_at role action object result",
    "periodic_tasks": "name period description last_run last_failure last_error",
    "dm_os_performance_counters": "object_name counter_name instance_name cntr_value cntr_type",
    "dm_broker_queue_monitors": "database_id queue_id state last_empty_rowset_time last_activated_time tasks_waiting",
    "dm_broker_activated_tasks": "spid database_id queue_id procedure_name execute_as",
}


def arguments_of(text: str) -> str:
    """Turn PostgreSQL's list of arguments into one of names and defaults, without types."""
    parts = []
    for argument in re.split(r", (?=\w+ )", text):
        name = argument.split(" ")[0]
        _, _, default = argument.partition(" DEFAULT ")
        parts.append(f"{name}={default.split('::')[0]}" if default else name)
    return " ".join(parts).replace('"', "")


def test_the_functions_have_their_arguments_in_order_with_their_defaults(database: Database) -> None:
    with database.connect() as connection:
        found: dict[str, list[str]] = {}
        for name, arguments in connection.execute(
            "select proname::text, pg_get_function_arguments(oid) from pg_proc"
            " where pronamespace = 'broker'::regnamespace order by pronargdefaults desc"
        ):
            found.setdefault(name, []).append(arguments_of(arguments))
    assert {name: found.get(name) for name in FUNCTIONS} == FUNCTIONS


def test_what_send_is_given_finds_its_overload(database: Database) -> None:
    with database.connect() as connection:
        types = connection.execute(
            "select proname::text, array_agg(format_type(proargtypes[2], null) order by proargtypes[2]) from pg_proc"
            " where pronamespace = 'broker'::regnamespace and proname in ('send', 'send_all') group by 1 order by 1"
        ).fetchall()
    assert types == [(name, ["bytea", "text", "xml", "jsonb"]) for name in ("send", "send_all")]


@pytest.mark.parametrize("view", OWN_COLUMNS)
def test_the_views_of_our_own_have_their_columns(database: Database, view: str) -> None:
    with database.connect() as connection:
        shown = [
            name
            for (name,) in connection.execute(
                "select attname::text from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 order by attnum",
                (f"broker.{view}",),
            )
        ]
    expected = OWN_COLUMNS[view].split()
    assert [name for name in shown if name in expected] == expected
