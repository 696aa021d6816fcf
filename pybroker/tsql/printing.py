"""From a tree to T-SQL: what is printed parses to an equal tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker.tsql import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def print_statement(statement: tree.Statement) -> str:
    """Return a statement's T-SQL, in one form whatever the script's was."""
    return " ".join(part for part in TABLE[type(statement)](statement) if part) + ";"


def _bracketed(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


def _name(name: tree.Name) -> str:
    if name.database is not None and name.schema is None:
        return f"{_bracketed(name.database)}..{_bracketed(name.name)}"
    parts = (name.database, name.schema, name.name)
    return ".".join(_bracketed(one) for one in parts if one is not None)


def _text(value: str) -> str:
    return "N'" + value.replace("'", "''") + "'"


def _switch(value: bool) -> str:
    return "ON" if value else "OFF"


def _owner(statement: Any) -> str:
    return "" if statement.owner is None else f"AUTHORIZATION {_bracketed(statement.owner)}"


def _options(options: Iterable[tuple[str, Any, Callable[[Any], str]]]) -> str:
    return ", ".join(f"{name} = {write(value)}" for name, value, write in options if value is not None)


def _message_type(one: tree.MessageType) -> Iterable[str]:
    validation = "" if one.validation is None else f"VALIDATION = {one.validation}"
    collection = one.schema_collection
    return (
        f"{one.verb} MESSAGE TYPE {_bracketed(one.name)}",
        _owner(one),
        validation,
        "" if collection is None else f"WITH SCHEMA COLLECTION {_name(collection)}",
    )


def _contract(one: tree.Contract) -> Iterable[str]:
    usages = ", ".join(f"{_bracketed(name)} SENT BY {sender}" for name, sender in one.usages)
    return f"CREATE CONTRACT {_bracketed(one.name)}", _owner(one), f"({usages})"


def _activation(one: tree.Activation) -> str:
    if one.drop:
        return "ACTIVATION (DROP)"
    options = _options(
        (
            ("STATUS", one.status, _switch),
            ("PROCEDURE_NAME", one.procedure, _name),
            ("MAX_QUEUE_READERS", one.max_queue_readers, str),
        )
    )
    execute_as = "" if one.execute_as is None else f"EXECUTE AS {_user(one.execute_as)}"
    return f"ACTIVATION ({', '.join(part for part in (options, execute_as) if part)})"


def _user(execute_as: str) -> str:
    return _text(execute_as[1:-1]) if execute_as.startswith("[") else execute_as


def _queue(one: tree.Queue) -> Iterable[str]:
    options = [
        _options((("STATUS", one.status, _switch), ("RETENTION", one.retention, _switch))),
        "" if one.activation is None else _activation(one.activation),
        ""
        if one.poison_message_handling is None
        else f"POISON_MESSAGE_HANDLING (STATUS = {_switch(one.poison_message_handling)})",
    ]
    written = ", ".join(option for option in options if option)
    return (
        f"{one.verb} QUEUE {_name(one.name)}",
        written and f"WITH {written}",
        "" if one.filegroup is None else f"ON {_bracketed(one.filegroup)}",
        one.maintenance or "",
    )


def _service(one: tree.Service) -> Iterable[str]:
    contracts = "" if one.contracts is None else f"({', '.join(map(_bracketed, one.contracts))})"
    return f"CREATE SERVICE {_bracketed(one.name)}", _owner(one), f"ON QUEUE {_name(one.queue)}", contracts


def _alter_service(one: tree.AlterService) -> Iterable[str]:
    changes = ", ".join(f"{verb} CONTRACT {_bracketed(name)}" for verb, name in one.changes or ())
    queue = "" if one.queue is None else f"ON QUEUE {_name(one.queue)}"
    return f"ALTER SERVICE {_bracketed(one.name)}", queue, changes and f"({changes})"


def _route(one: tree.Route) -> Iterable[str]:
    options = _options(
        (
            ("SERVICE_NAME", one.service_name, _text),
            ("BROKER_INSTANCE", one.broker_instance, _text),
            ("LIFETIME", one.lifetime, str),
            ("ADDRESS", one.address, _text),
            ("MIRROR_ADDRESS", one.mirror_address, _text),
        )
    )
    return f"{one.verb} ROUTE {_bracketed(one.name)}", _owner(one), f"WITH {options}"


def _binding(one: tree.RemoteServiceBinding) -> Iterable[str]:
    options = _options((("USER", one.user, _bracketed), ("ANONYMOUS", one.anonymous, _switch)))
    service = "" if one.to_service is None else f"TO SERVICE {_text(one.to_service)}"
    return (
        f"{one.verb} REMOTE SERVICE BINDING {_bracketed(one.name)}",
        _owner(one),
        service,
        f"WITH {options}",
    )


def _priority(one: tree.BrokerPriority) -> Iterable[str]:
    def or_any(write: Callable[[str], str]) -> Callable[[str], str]:
        return lambda value: write(value) if value else "ANY"

    options = _options(
        (
            ("CONTRACT_NAME", one.contract_name, or_any(_bracketed)),
            ("LOCAL_SERVICE_NAME", one.local_service_name, or_any(_bracketed)),
            ("REMOTE_SERVICE_NAME", one.remote_service_name, or_any(_text)),
            ("PRIORITY_LEVEL", one.priority_level, lambda level: str(level) if level else "DEFAULT"),
        )
    )
    return (
        f"{one.verb} BROKER PRIORITY {_bracketed(one.name)} FOR CONVERSATION",
        options and f"SET ({options})",
    )


def _drop(one: tree.Drop) -> Iterable[str]:
    return (f"DROP {one.kind} {_name(one.name)}",)


TABLE: dict[type[tree.Statement], Callable[[Any], Iterable[str]]] = {
    tree.MessageType: _message_type,
    tree.Contract: _contract,
    tree.Queue: _queue,
    tree.Service: _service,
    tree.AlterService: _alter_service,
    tree.Route: _route,
    tree.RemoteServiceBinding: _binding,
    tree.BrokerPriority: _priority,
    tree.Drop: _drop,
}
