"""Bad input of every function of schema `broker`: a numbered error with a hint, and nothing is changed.

`LINES` has a line for each function; a function without a line fails `test_every_function_has_its_line`. To add one:

    "drop_queue(text)": Line({"name": "'spare'"}, {"name": unknown("spare")}),

The first dictionary holds, for each argument by its name, an SQL literal with which the function succeeds; `{dialog}` and the
like stand for what `Place` makes. The second one holds, for each argument, the literals that must be refused, one at a time.
NULL is added to them, except for the arguments in `nullable`, to which NULL means something. An argument that takes every
value of its type (a message's body) is in `anything`. `tried_in` names the file of the tests of a function that succeeds only after
what this file can't make. What is not of the argument's type at all ('abc' for a uuid) never
reaches the function: PostgreSQL refuses it with an error of its own.
"""

from __future__ import annotations

import base64
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.conftest import migrated_database
from tests.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.embedded import EmbeddedServer

NUMBERED = re.compile(r"[ST]\d{4}")
LONG = "repeat('n', 129)"
MANY_BYTES = "repeat('ä', 32)"
NO_HANDLE = ["'00000000-0000-0000-0000-000000000000'"]
NOT_POSITIVE = ["'0'", "'-1 s'", "'1 s -1 day'"]
PRINCIPAL = ["''", "repeat('r', 64)"]
BINDING_USER = [*PRINCIPAL, "'public'", "'Public'", "'pg_database_owner'", "'pg_monitor'"]
CERTIFICATE, *CERTIFICATES = (
    f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(b'0' + bytes(length)).decode()}\n-----END CERTIFICATE-----\n"
    for length in (200, 201, 202)
)


def unknown(name: str) -> list[str]:
    """Names that are nearly that of an existing object, and are none."""
    return [
        "''",
        LONG,
        MANY_BYTES,
        f"'{name.upper()}'",
        f"'{name} '",
        f"'\"{name}\"'",
        f"'{name}''; drop table x; --'",
    ]


def choice(keyword: str) -> list[str]:
    """Values that are nearly a keyword."""
    return ["''", LONG, f"'{keyword.lower()}'", f"'{keyword} '", f"'{keyword}''; drop table x; --'"]


NEW = ["''", LONG]
VIEW_SCHEMA = ["''", LONG, "'nothing'", "'PUBLIC'", "'pg_catalog'", "'public; drop table x'"]
TYPES = [
    "'{nothing}'",
    "'{{order},{ack}}'",
    "'{order,order}'",
    "array[null]",
    "'{ORDER}'",
    "'{\"order''; --\"}'",
]
CONTRACTS = [
    "'{nothing}'",
    "'{{ordering},{DEFAULT}}'",
    "array[null]",
    "'{ORDERING}'",
    "'{\"ordering''; --\"}'",
]


@dataclass
class Line:
    """What a function takes and what it refuses; see the module."""

    valid: dict[str, str]
    bad: dict[str, list[str]] = field(default_factory=dict)
    nullable: set[str] = field(default_factory=set)
    anything: set[str] = field(default_factory=set)
    needs_xml: bool = False
    tried_in: str | None = None


DIALOG = {"conversation_handle": "{dialog}"}
BAD_TYPE = {"conversation_handle": NO_HANDLE, "message_type": unknown("order")}
DIALOGS = {"conversation_handles": "array[{dialog}]::uuid[]"}
BAD_ALL = {
    "conversation_handles": [
        "'{}'",
        "array[null]::uuid[]",
        "array[{dialog}, {dialog}]::uuid[]",
        "array[{dialog}, null]::uuid[]",
        f"array[{{dialog}}, {NO_HANDLE[0]}]::uuid[]",
        "array[array[{dialog}]]::uuid[]",
    ],
    "message_type": unknown("order"),
}
QUEUE_OPTIONS = {
    "status": "true",
    "retention": "false",
    "activation_procedure": "'public.program'",
    "max_queue_readers": "1",
    "activation_status": "true",
    "execute_as": "'OWNER'",
    "poison_message_handling": "true",
    "poison_action": "'DISABLE_QUEUE'",
    "scaling": "'SERVICE_BROKER'",
    "watchdog": "'60 s'",
}
BAD_QUEUE_OPTIONS = {
    "activation_procedure": [
        "''",
        LONG,
        "'nothing'",
        "'public.nothing'",
        "'a.b.c'",
        "'program; drop table x'",
        "'public.\"program'",
    ],
    "max_queue_readers": ["-1", "32768"],
    "execute_as": ["''", LONG, "'no such role'", "'self'", "'POSTGRES'"],
    "poison_action": choice("DISABLE_QUEUE"),
    "scaling": choice("SERVICE_BROKER"),
    "watchdog": ["'-1 s'", "'1 s -1 day'"],
}
ROUTE = {
    "address": "'tcp://far.example:4022'",
    "service_name": "'//far'",
    "broker_instance": "'6f9619ff-8b86-d011-b42d-00cf4fc964ff'",
    "lifetime": "'1 h'",
}
BAD_ROUTE = {
    "address": [
        "''",
        "repeat('a', 257)",
        "'tcp://'",
        "'tcp://far'",
        "'tcp://far:0'",
        "'tcp://far:65536'",
        "'far:4022'",
        "'http://far:4022'",
    ],
    "service_name": NEW,
    "broker_instance": ["''", LONG, "'far'", "'00000000-0000-0000-0000-00000000000'", "'current database'"],
    "lifetime": NOT_POSITIVE,
}
PRIORITY = {
    "contract_name": "'ordering'",
    "local_service_name": "'//shop'",
    "remote_service_name": "'//far'",
    "priority_level": "7",
}
BAD_PRIORITY = {
    "contract_name": unknown("ordering"),
    "local_service_name": unknown("//shop"),
    "remote_service_name": NEW,
    "priority_level": ["0", "11", "-1"],
}
ENDPOINT = {
    "listener_port": "4022",
    "state": "'STOPPED'",
    "listener_ip": "'ALL'",
    "certificate": "'worker'",
    "encryption": "'REQUIRED'",
    "message_forwarding": "false",
    "message_forward_size": "10",
}
BAD_ENDPOINT = {
    "listener_port": ["0", "1023", "65536", "-1"],
    "state": choice("STOPPED"),
    "listener_ip": ["''", "'all'", "'localhost'", "'300.0.0.1'", "'127.0.0.1/8'", LONG],
    "certificate": unknown("worker"),
    "encryption": choice("REQUIRED"),
    "message_forward_size": ["0", "-1"],
}
GRANT = Line(
    {
        "permission": "'SEND'",
        "securable_class": "'SERVICE'",
        "securable_name": "'//shop'",
        "role": "'somebody'",
    },
    {
        "permission": [*choice("SEND"), "'RECEIVE'"],
        "securable_class": [*choice("SERVICE"), "'QUEUE'"],
        "securable_name": unknown("//shop"),
        "role": PRINCIPAL,
    },
)

XSD = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"/>'

LINES: dict[str, Line] = {
    "alter_authorization(text,text,text)": Line(
        {"securable_class": "'QUEUE'", "name": "'shop'", "owner": "current_user"},
        {"securable_class": choice("QUEUE"), "name": unknown("shop"), "owner": PRINCIPAL},
    ),
    "alter_broker(text,boolean)": Line(
        {"action": "'ENABLE_BROKER'", "honor_broker_priority": "true"},
        {"action": choice("ENABLE_BROKER")},
        nullable={"action", "honor_broker_priority"},
    ),
    "alter_broker_priority(text,text,text,text,integer)": Line(
        {"name": "'express'", **PRIORITY},
        {
            "name": unknown("express"),
            **BAD_PRIORITY,
            # '' is ANY.
            "contract_name": unknown("ordering")[1:],
            "local_service_name": unknown("//shop")[1:],
            "remote_service_name": [LONG],
        },
        nullable=set(PRIORITY),
    ),
    "alter_certificate(text,boolean)": Line(
        {"name": "'spare'", "active_for_begin_dialog": "false"},
        {"name": unknown("spare")},
        anything={"active_for_begin_dialog"},
    ),
    "alter_endpoint(text,integer,text,text,text,text,boolean,integer)": Line(
        {"name": "'worker'", **ENDPOINT},
        {"name": unknown("worker"), **BAD_ENDPOINT},
        nullable=set(ENDPOINT),
        anything={"message_forwarding"},
    ),
    "alter_message_type(text,text,text)": Line(
        {"name": "'order'", "validation": "'NONE'", "schema_collection": "null"},
        {"name": unknown("order"), "validation": choice("NONE"), "schema_collection": unknown("schemas")},
        nullable={"schema_collection"},
    ),
    "alter_queue(text,boolean,boolean,text,integer,boolean,text,boolean,text,text,interval,text,text,boolean)": Line(
        {"name": "'shop'", **QUEUE_OPTIONS, "owner": "null", "schema": "null", "drop_activation": "false"},
        {"name": unknown("shop"), **BAD_QUEUE_OPTIONS, "owner": PRINCIPAL, "schema": VIEW_SCHEMA},
        nullable={*QUEUE_OPTIONS, "owner", "schema"},
        anything={"status", "retention", "activation_status", "poison_message_handling", "drop_activation"},
    ),
    "alter_remote_service_binding(text,text,boolean)": Line(
        {"name": "'binding'", "user_name": "'somebody'", "anonymous": "true"},
        {"name": unknown("binding"), "user_name": BINDING_USER},
        nullable={"user_name", "anonymous"},
        anything={"anonymous"},
    ),
    "alter_route(text,text,text,text,interval,text)": Line(
        {"name": "'far'", **ROUTE, "mirror_address": "null"},
        {"name": unknown("far"), **BAD_ROUTE, "mirror_address": ["''", "'far'", "'LOCAL'"]},
        nullable={*ROUTE, "mirror_address"},
    ),
    "alter_service(text,text,text[],text[])": Line(
        {
            "name": "'//warehouse'",
            "queue": "null",
            "add_contracts": "'{spare}'",
            "drop_contracts": "'{ordering}'",
        },
        {
            "name": unknown("//warehouse"),
            "queue": unknown("warehouse"),
            "add_contracts": [*CONTRACTS, "'{DEFAULT}'", "'{spare,spare}'"],
            "drop_contracts": [*CONTRACTS, "'{spare}'", "'{ordering,ordering}'"],
        },
        nullable={"queue"},
    ),
    "begin_conversation_timer(uuid,interval)": Line(
        {**DIALOG, "timeout": "'1 s'"},
        {"conversation_handle": NO_HANDLE, "timeout": [*NOT_POSITIVE, "'100 years'"]},
    ),
    "begin_dialog(text,text,text,text,uuid,uuid,interval,boolean)": Line(
        {
            "from_service": "'//shop'",
            "to_service": "'//warehouse'",
            "contract": "'ordering'",
            "broker_instance": "'CURRENT DATABASE'",
            "related_conversation": "null",
            "related_conversation_group": "null",
            "lifetime": "'1 h'",
            "encryption": "true",
        },
        {
            "from_service": unknown("//shop"),
            "to_service": NEW,
            "contract": unknown("ordering"),
            "broker_instance": BAD_ROUTE["broker_instance"],
            "related_conversation": NO_HANDLE,
            "lifetime": [*NOT_POSITIVE, "'100 years'"],
        },
        nullable={"broker_instance", "related_conversation", "related_conversation_group", "lifetime"},
        anything={"related_conversation_group", "encryption"},
    ),
    "create_broker_priority(text,text,text,text,integer)": Line(
        {"name": "'new'", **PRIORITY, "local_service_name": "'//warehouse'"},
        {"name": [*NEW, "'express'"], **BAD_PRIORITY},
        nullable=set(PRIORITY) - {"priority_level"},
    ),
    "create_certificate(text,text,text,boolean)": Line(
        {
            "name": "'new'",
            "certificate_pem": f"'{CERTIFICATE}'",
            "user_name": "'somebody'",
            "active_for_begin_dialog": "true",
        },
        {
            "name": [*NEW, "'worker'"],
            "certificate_pem": [
                "''",
                "'certificate'",
                f"'{CERTIFICATE}{CERTIFICATE}'",
                f"'{CERTIFICATE}-----BEGIN PRIVATE KEY-----'",
                # Registered already.
                f"'{CERTIFICATES[0]}'",
                f"'{CERTIFICATE}' || repeat(' ', 32768)",
                "repeat('n', 100000)",
            ],
            "user_name": PRINCIPAL,
        },
    ),
    "create_contract(text,text[],text[],text[],text)": Line(
        {
            "name": "'new'",
            "sent_by_initiator": "'{order}'",
            "sent_by_target": "'{ack}'",
            "sent_by_any": "'{nudge}'",
            "owner": "null",
        },
        {
            "name": [*NEW, "'ordering'"],
            "sent_by_initiator": TYPES,
            "sent_by_target": TYPES,
            "sent_by_any": TYPES,
            "owner": PRINCIPAL,
        },
        nullable={"owner"},
    ),
    "create_remote_service_binding(text,text,text,boolean,text)": Line(
        {
            "name": "'new'",
            "to_service": "'//new'",
            "user_name": "'somebody'",
            "anonymous": "false",
            "owner": "null",
        },
        {
            "name": [*NEW, "'binding'"],
            "to_service": [*NEW, "'//far'"],
            "user_name": BINDING_USER,
            "owner": PRINCIPAL,
        },
        nullable={"owner"},
        anything={"anonymous"},
    ),
    "create_endpoint(text,integer,text,text,text,text,boolean,integer)": Line(
        {"name": "'new'", **ENDPOINT},
        {"name": NEW, **BAD_ENDPOINT},
        nullable={"certificate"},
        anything={"message_forwarding"},
    ),
    "create_event_notification(text,text,text,text,text,boolean)": Line(
        {
            "name": "'new'",
            "queue": "'warehouse'",
            "event": "'QUEUE_ACTIVATION'",
            "to_service": "'//shop'",
            "broker_instance": "null",
            "fan_in": "false",
        },
        {
            "name": [*NEW, "'notice'"],
            "queue": unknown("warehouse"),
            "event": choice("QUEUE_ACTIVATION"),
            "to_service": NEW,
            "broker_instance": BAD_ROUTE["broker_instance"],
        },
        nullable={"broker_instance", "queue"},
    ),
    "create_message_type(text,text,text,text)": Line(
        {"name": "'new'", "validation": "'NONE'", "schema_collection": "null", "owner": "null"},
        {
            "name": [*NEW, "'order'"],
            "validation": choice("NONE"),
            "schema_collection": unknown("schemas"),
            "owner": PRINCIPAL,
        },
        nullable={"schema_collection", "owner"},
    ),
    "create_queue(text,boolean,boolean,text,integer,boolean,text,boolean,text,text,interval,text,text)": Line(
        {"name": "'new'", **QUEUE_OPTIONS, "owner": "null", "schema": "'public'"},
        {
            "name": [*NEW, MANY_BYTES, "'#temporary'", "'shop'", "'program_data'"],
            **BAD_QUEUE_OPTIONS,
            "owner": PRINCIPAL,
            "schema": VIEW_SCHEMA,
        },
        nullable={"owner", "watchdog"},
        anything={"status", "retention", "activation_status", "poison_message_handling"},
    ),
    "create_route(text,text,text,text,interval,text,text,text)": Line(
        {"name": "'new'", **ROUTE, "mirror_address": "null", "owner": "null", "scope": "'DATABASE'"},
        {
            "name": [*NEW, "'far'"],
            **BAD_ROUTE,
            "mirror_address": ["''", "'far'", "'LOCAL'"],
            "owner": PRINCIPAL,
            "scope": choice("DATABASE"),
        },
        nullable={"broker_instance", "lifetime", "mirror_address", "owner"},
    ),
    "create_schema_collection(text,text[])": Line(
        {"name": "'new'", "documents": f"array['{XSD}']"},
        {
            "name": [*NEW, "'spare'"],
            "documents": [
                "'{}'::text[]",
                "array[null]::text[]",
                "array['', null]",
                "array['<a/>']",
                "array['no XML']",
                f"array['{XSD}', '<a/>']",
                f"array[['{XSD}'], ['{XSD}']]",
                f"array['<!DOCTYPE a>{XSD}']",
            ],
        },
    ),
    "create_service(text,text,text[],text)": Line(
        {"name": "'new'", "queue": "'shop'", "contracts": "'{ordering}'", "owner": "null"},
        {
            "name": [*NEW, "'//shop'"],
            "queue": unknown("shop"),
            "contracts": [*CONTRACTS, "'{ordering,ordering}'"],
            "owner": PRINCIPAL,
        },
        nullable={"owner"},
    ),
    "start_trace(uuid,text,interval,integer)": Line(
        {**DIALOG, "service": "'//shop'", "duration": "'1 min'", "max_rows": "1"},
        {
            "conversation_handle": NO_HANDLE,
            "service": unknown("//shop"),
            "duration": ["'-1 s'", "'100 years'"],
            "max_rows": ["0", "-1", "1000001"],
        },
        nullable={"conversation_handle", "service"},
    ),
    "stop_trace()": Line({}),
    "peek(text,integer,integer,bigint,integer)": Line(
        {"queue": "'shop'", "top": "1", "after_priority": "5", "after_order": "0", "body_bytes": "0"},
        {
            "queue": unknown("shop"),
            "top": ["0", "-1", "101"],
            "after_priority": ["0", "11", "-1"],
            "after_order": ["-1"],
            "body_bytes": ["-1", "65537"],
        },
    ),
    "query_service(text,text,text,uuid,boolean)": Line(
        {
            "from_service": "'//shop'",
            "to_service": "'//warehouse'",
            "contract": "'ordering'",
            "conversation_id": "null",
            "encryption": "true",
        },
        {"from_service": unknown("//shop"), "to_service": NEW, "contract": NEW},
        nullable={"contract", "conversation_id"},
        anything={"conversation_id", "encryption"},
    ),
    "read_status(uuid)": Line(
        DIALOG, {"conversation_handle": [*NO_HANDLE, "{dialog}"]}, tried_in="test_asking.py"
    ),
    "queue_groups(text)": Line({"queue": "'shop'"}, {"queue": unknown("shop")}),
    "note_console_action(text,text,text)": Line(
        {"action": "'redrive'", "object": "'warehouse'", "result": "'done'"},
        {
            "action": NEW,
            "object": ["''", "repeat('n', 1001)"],
            "result": ["''", "repeat('n', 1001)"],
        },
    ),
    "announce_program(uuid,text,integer,text,integer)": Line(
        {
            "program_id": "gen_random_uuid()",
            "queue": "'shop'",
            "max_queue_readers": "1",
            "host": "'here'",
            "process_id": "1",
        },
        {
            "queue": unknown("shop"),
            "max_queue_readers": ["-1", "32768"],
            "host": ["''", "repeat('h', 256)"],
        },
        anything={"program_id", "process_id"},
    ),
    # What has no context, or is none of the caller's, has NULL.
    "get_traceparent(message)": Line(
        {"message": "null::broker.message"}, nullable={"message"}, anything={"message"}
    ),
    # What it can't find is a finding.
    "diagnose(uuid)": Line(DIALOG, nullable={"conversation_handle"}, anything={"conversation_handle"}),
    "discard(uuid)": Line(DIALOG, {"conversation_handle": NO_HANDLE}, tried_in="test_j_poison.py"),
    "drop_broker_priority(text)": Line({"name": "'express'"}, {"name": unknown("express")}),
    "drop_certificate(text)": Line({"name": "'spare'"}, {"name": [*unknown("spare"), "'worker'"]}),
    "drop_contract(text)": Line(
        {"name": "'spare'"}, {"name": [*unknown("spare"), "'ordering'", "'DEFAULT'"]}
    ),
    "drop_endpoint(text)": Line({"name": "'worker'"}, {"name": unknown("worker")}),
    "drop_event_notification(text,text)": Line(
        {"name": "'notice'", "queue": "'warehouse'"},
        {"name": unknown("notice"), "queue": [*unknown("warehouse"), "'shop'"]},
        nullable={"queue"},
    ),
    "drop_message_type(text)": Line(
        {"name": "'spare'"}, {"name": [*unknown("spare"), "'order'", "'DEFAULT'"]}
    ),
    "drop_queue(text)": Line({"name": "'spare'"}, {"name": [*unknown("spare"), "'shop'"]}),
    "drop_remote_service_binding(text)": Line({"name": "'binding'"}, {"name": unknown("binding")}),
    "drop_route(text)": Line({"name": "'far'"}, {"name": unknown("far")}),
    "drop_schema_collection(text)": Line({"name": "'spare'"}, {"name": [*unknown("spare"), "'used'"]}),
    "drop_service(text)": Line({"name": "'//warehouse'"}, {"name": [*unknown("//warehouse"), "'//shop'"]}),
    "end_conversation(uuid,integer,text,boolean)": Line(
        {**DIALOG, "error_code": "1", "error_description": "'why'", "cleanup": "false"},
        {
            "conversation_handle": NO_HANDLE,
            "error_code": ["0", "-1"],
            "error_description": ["repeat('n', 3001)"],
            # With an error.
            "cleanup": ["true"],
        },
    ),
    "get_conversation_group(text,interval)": Line(
        {"queue": "'shop'", "timeout": "'0'"},
        {"queue": unknown("shop"), "timeout": ["'-1 s'", "'100 years'"]},
        nullable={"timeout"},
    ),
    "get_transmission_status(uuid)": Line(DIALOG, anything={"conversation_handle"}),
    '"grant"(text,text,text,text)': GRANT,
    "move_conversation(uuid,uuid)": Line(
        {**DIALOG, "conversation_group_id": "{group}"},
        {"conversation_handle": NO_HANDLE, "conversation_group_id": NO_HANDLE},
    ),
    "note_failure(uuid,text,interval[])": Line(
        {**DIALOG, "error_text": "'why'", "retry_after": "array[interval '1 s']"},
        {
            "conversation_handle": NO_HANDLE,
            "retry_after": [
                "array[interval '-1 s']",
                "array[null::interval]",
                "array_fill(interval '1 s', array[101])",
            ],
        },
        anything={"error_text"},
        nullable={"retry_after"},
    ),
    "receive(text,integer,uuid,uuid,interval)": Line(
        {
            "queue": "'shop'",
            "top": "1",
            "conversation_handle": "{dialog}",
            "conversation_group_id": "null",
            "timeout": "'0'",
        },
        {
            "queue": [*unknown("shop"), "'warehouse'"],
            "top": ["-1"],
            "conversation_handle": NO_HANDLE,
            # Beside a handle.
            "conversation_group_id": NO_HANDLE,
            "timeout": ["'-1 s'", "'100 years'"],
        },
        nullable={"top", "conversation_handle", "conversation_group_id", "timeout"},
    ),
    "receive_groups(text,integer,integer,interval)": Line(
        {"queue": "'shop'", "max_groups": "1", "top": "1", "timeout": "'0'"},
        {
            "queue": unknown("shop"),
            "max_groups": ["-1"],
            "top": ["-1"],
            "timeout": ["'-1 s'", "'100 years'"],
        },
        nullable={"top", "timeout"},
    ),
    "redrive_due(text)": Line({"queue": "'shop'"}, {"queue": unknown("shop")}),
    "redrive(uuid)": Line(DIALOG, {"conversation_handle": NO_HANDLE}, tried_in="test_j_poison.py"),
    "revoke(text,text,text,text)": GRANT,
    "send(uuid,text,bytea)": Line(
        {**DIALOG, "message_type": "'order'", "body": "'x'::bytea"}, BAD_TYPE, anything={"body"}
    ),
    "send(uuid,text,jsonb)": Line(
        {**DIALOG, "message_type": "'order'", "body": "'1'::jsonb"}, BAD_TYPE, anything={"body"}
    ),
    "send(uuid,text,text)": Line(
        {**DIALOG, "message_type": "'order'", "body": "'x'::text"}, BAD_TYPE, anything={"body"}
    ),
    "send(uuid,text,xml)": Line(
        {**DIALOG, "message_type": "'order'", "body": "'<x/>'::xml"},
        BAD_TYPE,
        anything={"body"},
        needs_xml=True,
    ),
    "send_all(uuid[],text,bytea)": Line(
        {**DIALOGS, "message_type": "'order'", "body": "'x'::bytea"}, BAD_ALL, anything={"body"}
    ),
    "send_all(uuid[],text,jsonb)": Line(
        {**DIALOGS, "message_type": "'order'", "body": "'1'::jsonb"}, BAD_ALL, anything={"body"}
    ),
    "send_all(uuid[],text,text)": Line(
        {**DIALOGS, "message_type": "'order'", "body": "'x'::text"}, BAD_ALL, anything={"body"}
    ),
    "send_all(uuid[],text,xml)": Line(
        {**DIALOGS, "message_type": "'order'", "body": "'<x/>'::xml"},
        BAD_ALL,
        anything={"body"},
        needs_xml=True,
    ),
    "send_batch(uuid,text,bytea[])": Line(
        {**DIALOG, "message_type": "'order'", "bodies": "array['x'::bytea]"},
        {**BAD_TYPE, "bodies": ["array[null]::bytea[]", "'{{x},{y}}'"]},
    ),
    "sleep_on(text)": Line({"queue": "'shop'"}, {"queue": unknown("shop")}),
    # A queue that was dropped while its reader slept is no error.
    "wake_up(text)": Line({"queue": "'shop'"}, nullable={"queue"}, anything={"queue"}),
}


class Place:
    """A database with one object of each kind, and an open dialog."""

    def __init__(self, shop: Shop) -> None:
        self.psql = shop.psql
        self.has_xml_parser = shop.has_xml_parser
        self.psql.rows("create procedure program() language sql as ''; create table program_data ()")
        self.psql.rows(
            "select broker.create_message_type('spare'), broker.create_contract('spare', '{order}')"
        )
        self.psql.rows("select broker.create_queue('spare')")
        for name in ("spare", "used"):
            self.psql.rows("select broker.create_schema_collection(%s, array[%s])", name, XSD)
        self.psql.rows("select broker.create_message_type('used', 'VALID_XML', 'used')")
        self.psql.rows("select broker.create_route('far', 'tcp://far.example:4022', '//far')")
        self.psql.rows("select broker.create_remote_service_binding('binding', '//far', 'somebody')")
        self.psql.rows(
            "select broker.create_broker_priority('express', local_service_name => '//shop', priority_level => 9)"
        )
        for name, pem in zip(("worker", "spare"), CERTIFICATES, strict=True):
            self.psql.rows("select broker.create_certificate(%s, %s, 'somebody')", name, pem)
        self.psql.rows("select broker.create_endpoint('worker', 4022, certificate => 'worker')")
        self.psql.rows(
            "select broker.create_event_notification('notice', 'warehouse', 'BROKER_QUEUE_DISABLED', '//shop')"
        )
        dialog = self.psql.dialog()
        self.psql.send(dialog)
        group = self.psql.value(
            "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
            self.psql.dialog(),
        )
        self._places = {"{dialog}": f"'{dialog}'", "{group}": f"'{group}'"}
        self._contents = " union all ".join(
            f"select '{table}', md5(string_agg(t::text, '|' order by t::text)) from {table} t"
            for (table,) in self.psql.rows(
                "select oid::regclass::text from pg_class where relnamespace = 'broker_private'::regnamespace and relkind = 'r'"
            )
        )

    def call(self, function: str, arguments: dict[str, str]) -> None:
        listed = ", ".join(f"{name} => {literal}" for name, literal in arguments.items())
        name = function[: function.index("(")].strip('"')
        for place, literal in self._places.items():
            listed = listed.replace(place, literal)
        self.psql.rows(f"select broker.{name}({listed})")

    def contents(self) -> list[tuple[Any, ...]]:
        """What all tables hold, and which views there are."""
        views = "select 'views', string_agg(viewname, '|' order by viewname) from pg_views"
        return sorted(self.psql.rows(f"{self._contents} union all {views}"))


@pytest.fixture(scope="module")
def place(any_server: EmbeddedServer) -> Iterator[Place]:
    shop = Shop(migrated_database(any_server, f"bad_input_{uuid.uuid4().hex[:8]}"))
    yield Place(shop)
    shop.close()


@pytest.fixture
def undo(place: Place) -> Iterator[None]:
    """Take back what a valid call did."""
    with place.psql.connection.transaction(force_rollback=True):
        yield


def test_every_function_has_its_line(place: Place) -> None:
    functions = place.psql.rows(
        "select replace(p.oid::regprocedure::text, 'broker.', ''), coalesce(p.proargnames[:p.pronargs], '{}') from pg_proc p"
        " where p.pronamespace = 'broker'::regnamespace"
    )
    assert sorted(LINES) == sorted(function for function, _ in functions)
    for function, names in functions:
        line = LINES[function]
        assert sorted(line.valid) == sorted(names), function
        assert sorted({*line.bad, *line.anything, *_switches(line)}) == sorted(names), function


def _switches(line: Line) -> set[str]:
    """Arguments of type boolean: each value but NULL means something."""
    return {name for name, literal in line.valid.items() if literal in ("true", "false")}


@pytest.mark.usefixtures("undo")
@pytest.mark.parametrize("function", LINES)
def test_a_valid_call_succeeds(place: Place, function: str) -> None:
    line = LINES[function]
    if line.needs_xml and not place.has_xml_parser:
        pytest.skip("this server has no type xml")
    if line.tried_in is not None:
        pytest.skip(f"needs what {line.tried_in} makes")
    if function.startswith("create_endpoint("):
        place.psql.rows("select broker.drop_endpoint('worker')")
    place.call(function, line.valid)


@pytest.mark.parametrize("function", LINES)
def test_bad_input_is_refused_with_a_number_and_changes_nothing(place: Place, function: str) -> None:
    line = LINES[function]
    if line.needs_xml and not place.has_xml_parser:
        pytest.skip("this server has no type xml")
    before = place.contents()
    faults = []
    for argument in line.valid:
        values = list(line.bad.get(argument, ()))
        if argument not in line.nullable:
            values.append("null")
        for value in values:
            try:
                place.call(function, {**line.valid, argument: value})
                faults.append((argument, value, "was taken"))
            except psycopg.Error as error:
                if not NUMBERED.fullmatch(error.sqlstate or "") or not error.diag.message_hint:
                    faults.append((argument, value, repr(error)))
    assert not faults
    assert place.contents() == before


ODD = ['it\'s "odd"; drop table x; --', "ä" * 100, "Order", "ORDER", " order", "{order}", "%s%I", "\\", "$1"]


@pytest.mark.usefixtures("undo")
@pytest.mark.parametrize("name", ODD)
def test_a_name_is_taken_as_it_is(place: Place, name: str) -> None:
    psql = place.psql
    psql.rows("select broker.create_message_type(%s)", name)
    psql.rows("select broker.create_contract(%s, array[%s])", name, name)
    psql.rows("select broker.create_queue(%s, schema => 'public')", name[:31])
    psql.rows("select broker.create_service(%s, %s, array[%s])", name, name[:31], name)
    psql.rows("select broker.create_route(%s, 'LOCAL', %s)", name, name)
    psql.rows("select broker.create_broker_priority(%s, remote_service_name => %s)", name, name)
    psql.rows("select broker.grant('SEND', 'SERVICE', %s, %s)", name, name[:31])
    dialog = psql.value("select broker.begin_dialog(%s, %s, %s)", name, name, name)
    psql.send(dialog, name, b"body")
    received = psql.rows(
        "select service_name, service_contract_name, message_type_name, message_body from broker.receive(%s)",
        name[:31],
    )
    assert received == [(name, name, name, b"body")]
    psql.end(dialog)
    psql.rows("select broker.revoke('SEND', 'SERVICE', %s, %s)", name, name[:31])
    for kind in ("broker_priority", "route", "service", "contract"):
        psql.rows(f"select broker.drop_{kind}(%s)", name)
    psql.rows("select broker.drop_queue(%s)", name[:31])
