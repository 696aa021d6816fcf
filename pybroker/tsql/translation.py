"""What each statement becomes: one table, from a class of the tree to a call in schema `broker`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pybroker.tsql import tree
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable


# Of what is named without one.
DEFAULT_SCHEMA = "dbo"


@dataclass(frozen=True, slots=True)
class Seconds:
    """A length of time."""

    count: int


OWNERS = {"dbo", "sa"}
_DATABASE_OWNER = (
    "(select pg_catalog.pg_get_userbyid(d.datdba) from pg_catalog.pg_database d"
    " where d.datname = pg_catalog.current_database())"
)
Value = str | int | bool | None | tuple[str, ...] | Seconds


@dataclass(frozen=True, slots=True)
class Translation:
    """The PostgreSQL form, and what of the statement has no meaning here."""

    sql: str | None
    notes: tuple[str, ...] = ()


def translate(statement: tree.Statement, *, in_msdb: bool = False) -> Translation:
    """Return what a statement becomes.

    Args:
        statement: of Service Broker's own.
        in_msdb: whether it stands behind USE msdb, whose routes are those of the worker.

    Raises:
        ScriptError: for what has no faithful form, with what to write instead.
    """
    if in_msdb and isinstance(statement, tree.Route) and statement.verb == "CREATE":
        return _route(statement, scope="WORKER")
    return TABLE[type(statement)](statement)


def literal(value: Value) -> str:
    """Write a value in PostgreSQL's SQL."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Seconds(count):
            return f"'{count} s'"
        case tuple():
            return f"array[{', '.join(map(literal, value))}]::text[]"
        case _:
            quoted = value.replace("'", "''")
            # Read alike whatever standard_conforming_strings is.
            return "E'" + quoted.replace("\\", "\\\\") + "'" if "\\" in quoted else f"'{quoted}'"


def principal(name: str) -> str:
    """Write who is meant, as SQL; `dbo` and `sa` are the database's owner, and `guest` is everybody."""
    if name.lower() in OWNERS:
        return _DATABASE_OWNER
    return literal("public" if name.lower() in ("guest", "public") else name)


def identifier(name: str) -> str:
    """Write the name of a table, queue or procedure; these match in any case, so they are folded."""
    return '"' + name.lower().replace('"', '""') + '"'


def refuse_others(statement: tree.Statement, is_here: Callable[[str | None], bool]) -> None:
    """Refuse a name of another database than the one where the script is.

    Raises:
        ScriptError: the statement has one.
    """
    held = [getattr(statement, one.name) for one in fields(statement)]
    held += [one.procedure for one in held if isinstance(one, tree.Activation)]
    for name in held:
        if isinstance(name, tree.Name) and not is_here(name.database):
            said = f"an object of another database: write USE [{name.database}] before"
            raise ScriptError(statement.position, said)


def call(function: str, name: str, **arguments: Value) -> str:
    """Write a call of a function in schema `broker`; arguments that are None are left out."""
    given = "".join(
        f", {key} => {_argument(key, value)}" for key, value in arguments.items() if value is not None
    )
    return f"select broker.{function}({literal(name)}{given});"


def _argument(key: str, value: Value) -> str:
    is_owner = key in ("owner", "execute_as") and isinstance(value, str) and value.lower() in OWNERS
    return principal(str(value)) if is_owner else literal(value)


def _verb(statement: Any) -> str:
    owner = getattr(statement, "owner", None)
    if statement.verb == "ALTER" and owner is not None:
        raise ScriptError(statement.position, "AUTHORIZATION is no clause of ALTER: use ALTER AUTHORIZATION")
    return str(statement.verb).lower()


def _message_type(statement: tree.MessageType) -> Translation:
    verb = _verb(statement)
    if verb == "alter" and statement.validation is None:
        raise ScriptError(statement.position, "ALTER MESSAGE TYPE needs VALIDATION = …")
    collection = statement.schema_collection
    return Translation(
        call(
            f"{verb}_message_type",
            statement.name,
            validation=statement.validation,
            schema_collection=None if collection is None else collection.name,
            owner=statement.owner,
        )
    )


def _contract(statement: tree.Contract) -> Translation:
    sides = {
        f"sent_by_{side.lower()}": tuple(name for name, sender in statement.usages if sender == side) or None
        for side in ("INITIATOR", "TARGET", "ANY")
    }
    return Translation(call("create_contract", statement.name, **sides, owner=statement.owner))


def _queue(statement: tree.Queue) -> Translation:
    if statement.maintenance is not None:
        if statement.verb == "CREATE":
            word = statement.maintenance.split()[0]
            raise ScriptError(statement.position, f"{word} is a clause of ALTER QUEUE: leave it out")
        why = "autovacuum keeps queues, and there are no filegroups"
        return Translation(None, (f"{statement.maintenance} has no meaning here: {why}",))
    activation = statement.activation or tree.Activation()
    if statement.verb == "CREATE" and activation.drop:
        raise ScriptError(statement.position, "ACTIVATION (DROP) is a clause of ALTER QUEUE: leave it out")
    if statement.verb == "CREATE" and statement.activation and activation.procedure is None:
        raise ScriptError(statement.position, "ACTIVATION of a new queue needs PROCEDURE_NAME = …")
    procedure, schema = activation.procedure, (statement.name.schema or DEFAULT_SCHEMA).lower()
    called = None
    if procedure is not None:
        called = f"{identifier(procedure.schema or DEFAULT_SCHEMA)}.{identifier(procedure.name)}"
    execute_as = activation.execute_as
    making = statement.verb == "CREATE"
    sql = call(
        f"{statement.verb.lower()}_queue",
        statement.name.name.lower(),
        status=statement.status,
        retention=statement.retention,
        activation_procedure=called,
        max_queue_readers=activation.max_queue_readers,
        activation_status=activation.status,
        execute_as=execute_as[1:-1] if execute_as and execute_as.startswith("[") else execute_as,
        poison_message_handling=statement.poison_message_handling,
        schema=schema if making else None,
        drop_activation=activation.drop or None,
    )
    if execute_as in ("[SELF]", "[OWNER]"):
        raise ScriptError(
            statement.position, f"a user named {execute_as[1:-1]}: write the keyword without quotes"
        )
    if making:
        sql = f"create schema if not exists {identifier(schema)};\n{sql}"
    group = statement.filegroup
    return Translation(sql, (f"ON [{group}] has no meaning here: there are no filegroups",) if group else ())


def _service(statement: tree.Service) -> Translation:
    queue = statement.queue.name.lower()
    return Translation(
        call(
            "create_service",
            statement.name,
            queue=queue,
            contracts=statement.contracts,
            owner=statement.owner,
        )
    )


def _alter_service(statement: tree.AlterService) -> Translation:
    if statement.queue is None and statement.changes is None:
        raise ScriptError(statement.position, "ALTER SERVICE needs ON QUEUE, ADD CONTRACT or DROP CONTRACT")
    changes = statement.changes or ()
    return Translation(
        call(
            "alter_service",
            statement.name,
            queue=None if statement.queue is None else statement.queue.name.lower(),
            add_contracts=tuple(name for verb, name in changes if verb == "ADD") or None,
            drop_contracts=tuple(name for verb, name in changes if verb == "DROP") or None,
        )
    )


def _route(statement: tree.Route, scope: str | None = None) -> Translation:
    verb = _verb(statement)
    if verb == "create" and statement.address is None:
        raise ScriptError(
            statement.position, "CREATE ROUTE needs ADDRESS = 'TCP://host:port', 'LOCAL' or 'TRANSPORT'"
        )
    return Translation(
        call(
            f"{verb}_route",
            statement.name,
            address=statement.address,
            service_name=statement.service_name,
            broker_instance=statement.broker_instance,
            lifetime=None if statement.lifetime is None else Seconds(statement.lifetime),
            mirror_address=statement.mirror_address,
            owner=statement.owner,
            scope=scope,
        )
    )


def _binding(statement: tree.RemoteServiceBinding) -> Translation:
    verb = _verb(statement)
    if (verb == "create") is (statement.to_service is None):
        raise ScriptError(
            statement.position, "TO SERVICE belongs to CREATE REMOTE SERVICE BINDING, and only to it"
        )
    if verb == "create" and statement.user is None:
        raise ScriptError(statement.position, "CREATE REMOTE SERVICE BINDING needs WITH USER = …")
    return Translation(
        call(
            f"{verb}_remote_service_binding",
            statement.name,
            to_service=statement.to_service,
            user_name=statement.user,
            anonymous=statement.anonymous,
            owner=statement.owner,
        )
    )


def _priority(statement: tree.BrokerPriority) -> Translation:
    creates = statement.verb == "CREATE"
    level = 5 if statement.priority_level == 0 else statement.priority_level

    def criterion(value: str | None) -> str | None:
        return None if creates and value == "" else value

    return Translation(
        call(
            f"{statement.verb.lower()}_broker_priority",
            statement.name,
            contract_name=criterion(statement.contract_name),
            local_service_name=criterion(statement.local_service_name),
            remote_service_name=criterion(statement.remote_service_name),
            priority_level=level,
        )
    )


def _drop(statement: tree.Drop) -> Translation:
    if (statement.name.schema or statement.name.database) and statement.kind != "QUEUE":
        raise ScriptError(
            statement.position, f"a {statement.kind.lower()} has no schema: write [{statement.name.name}]"
        )
    name = statement.name.name
    name = name.lower() if statement.kind == "QUEUE" else name
    return Translation(call(f"drop_{statement.kind.lower().replace(' ', '_')}", name))


TABLE: dict[type[tree.Statement], Callable[[Any], Translation]] = {
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
