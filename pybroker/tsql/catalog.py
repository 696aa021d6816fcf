"""SQL Server's catalog views, read from the broker's and PostgreSQL's; no table is made for them."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

# The views of schema broker whose columns are those of SQL Server, without moments.
_SAME = (
    "conversation_groups",
    "conversation_priorities",
    "dm_broker_activated_tasks",
    "dm_broker_forwarded_messages",
    "dm_os_performance_counters",
    "message_type_xml_schema_collection_usages",
    "remote_service_bindings",
    "service_broker_endpoints",
    "service_contract_message_usages",
    "service_contract_usages",
    "service_contracts",
    "service_message_types",
    "service_queue_usages",
    "services",
)
_FROM_FILES = (
    "certificates",
    "columns",
    "conversation_endpoints",
    "database_principals",
    "databases",
    "dm_broker_connections",
    "dm_broker_queue_monitors",
    "dm_exec_sessions",
    "endpoints",
    "event_notifications",
    "events",
    "messages",
    "objects",
    "partitions",
    "routes",
    "schemas",
    "service_queues",
    "symmetric_keys",
    "transmission_queue",
    "xml_schema_collections",
)
# Those that are others with other names, or a part of them.
_DERIVED = {
    "procedures": ("objects", "v.*", "v.type = 'P'"),
    "server_principals": ("database_principals", "v.*", "true"),
    "sql_logins": ("database_principals", "v.*", "v.type = 'S'"),
    "sysdatabases": ("databases", "v.*, v.database_id as dbid", "true"),
    "sysobjects": ("objects", "v.*, v.type as xtype, v.object_id as id", "true"),
    # The base table; the whitepaper counts its rows by sys.partitions.
    "sysxmitqueue": ("transmission_queue", "v.*", "true"),
    "tables": ("objects", "v.*", "v.type = 'U'"),
    "tcp_endpoints": ("endpoints", "v.*", "true"),
    "views": ("objects", "v.*", "v.type = 'V'"),
}
_COMMENT = re.compile(r"^--[^\n]*\n", re.MULTILINE)


def names() -> list[str]:
    """Return the names of the views, without `sys.`."""
    return sorted({*_SAME, *_FROM_FILES, *_DERIVED})


@cache
def relation(name: str) -> str | None:
    """Return a subquery, in parentheses, for the view of this name in schema `sys`; None if there is none."""
    name = name.lower()
    if name in _SAME:
        return f"(select v.* from broker.{name} v)"  # noqa: S608 - a name of this module
    if name in _FROM_FILES:
        text = files("pybroker.tsql.catalog_views").joinpath(f"{name}.sql").read_text("utf-8")
        return f"({_COMMENT.sub('', text).strip()})"
    if name in _DERIVED:
        base, columns, condition = _DERIVED[name]
        return f"(select {columns} from {relation(base)} v where {condition})"  # noqa: S608
    return None
