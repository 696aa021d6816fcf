"""What makes a database have what is defined: statements, each after what it needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from pybroker.definitions.objects import (
    BrokerPriority,
    Contract,
    Definition,
    Grant,
    MessageType,
    Queue,
    RemoteServiceBinding,
    Route,
    SchemaCollection,
    Service,
    repeated,
)
from pybroker.duration import as_interval
from pybroker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pybroker.definitions.catalog import Catalog

ORDER: tuple[type[Definition], ...] = (
    SchemaCollection,
    MessageType,
    Contract,
    Queue,
    Service,
    Route,
    RemoteServiceBinding,
    BrokerPriority,
)
_CLASSES = {
    "schema_collection": "XML SCHEMA COLLECTION",
    "message_type": "MESSAGE TYPE",
    "contract": "CONTRACT",
    "queue": "QUEUE",
    "service": "SERVICE",
    "route": "ROUTE",
    "remote_service_binding": "REMOTE SERVICE BINDING",
}
_ACTIVATION = {"activation_procedure", "max_queue_readers", "execute_as", "activation_status"}
# SELF and OWNER mean a role only when the queue is created.
_NOT_A_ROLE = {"SELF", "OWNER"}


class DefinitionError(BrokerError):
    """The definitions can't be applied as they are; nothing was done."""


@dataclass(frozen=True)
class Step:
    """One statement of a plan.

    Attributes:
        summary: what it does, in a line.
        function: the function of schema ``broker`` that does it.
        arguments: by name.
        is_destructive: whether it drops an object, with what belongs to it.
    """

    summary: str
    function: str
    arguments: Mapping[str, Any]
    is_destructive: bool = False

    @property
    def statement(self) -> str:
        """The call, with a placeholder for each parameter."""
        named = ", ".join(f"{name} => %s" for name in self.arguments)
        return f'select broker."{self.function}"({named})'

    @property
    def parameters(self) -> Sequence[Any]:
        """The values of the arguments, in their order."""
        return tuple(
            as_interval(value) if isinstance(value, timedelta) else value for value in self.arguments.values()
        )

    def __str__(self) -> str:
        """The step as `pybroker apply` prints it."""
        return self.summary


@dataclass(frozen=True)
class Plan:
    """What makes a database have what is defined.

    Attributes:
        steps: each after those that it needs; none if the database has it all.
    """

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        """A line for each step."""
        return "\n".join(map(str, self.steps)) or "nothing to do"


def plan(catalog: Catalog, definitions: Sequence[Definition | Grant], *, prune: bool = False) -> Plan:
    """Compare a database with definitions.

    Args:
        catalog: what the database has.
        definitions: what it should have, in any order. What else it has stays.
        prune: whether to drop what is not defined, and revoke what is not granted by a definition.

    Raises:
        DefinitionError: an object is defined twice; or a contract or schema collection is to change, which
            has conversations or is in use: the message says the steps that work.
    """
    if twice := repeated(definitions):
        raise DefinitionError(f"{twice} is defined twice.", hint="Define each object once.")
    wanted = {(each.kind, each.name): each for each in definitions if isinstance(each, Definition)}
    grants = {each for each in definitions if isinstance(each, Grant)}
    made = [
        step
        for kind in ORDER
        for key, each in wanted.items()
        if isinstance(each, kind)
        for step in _steps(each, catalog.objects.get(key), catalog)
    ]
    granted = [_grant(each) for each in sorted(grants - catalog.grants, key=repr)]
    pruned = _pruned(catalog, wanted, grants) if prune else ()
    return Plan(tuple(chain(made, granted, pruned)))


def _is_from_the_beginning(grant: Grant) -> bool:
    return grant.securable_class == "MESSAGE TYPE" and grant.role == "public"


def _pruned(
    catalog: Catalog, wanted: Mapping[tuple[str, str], Definition], grants: set[Grant]
) -> Iterator[Step]:
    kept = {(_CLASSES.get(kind, ""), name) for kind, name in wanted}
    for grant in sorted(catalog.grants - grants, key=repr):
        if (grant.securable_class, grant.securable_name) in kept and not _is_from_the_beginning(grant):
            yield _grant(grant, is_given=False)
    dropped = [
        each
        for kind in reversed(ORDER)
        for key, each in catalog.objects.items()
        if isinstance(each, kind) and key not in wanted
    ]
    held = _held_by_conversations(dropped)
    yield from (_drop(each) for each in dropped if (each.kind, each.name) not in held)


def _held_by_conversations(dropped: Sequence[Definition]) -> set[tuple[str, str]]:
    """What stays until a worker has swept the conversations of the dropped contracts: their types."""
    types = {
        name
        for each in dropped
        if isinstance(each, Contract)
        for name in (*each.sent_by_initiator, *each.sent_by_target, *each.sent_by_any)
    }
    schemas = {
        each.schema_collection for each in dropped if isinstance(each, MessageType) and each.name in types
    }
    return {(MessageType.kind, name) for name in types} | {
        (SchemaCollection.kind, name) for name in schemas if name is not None
    }


def _steps(wanted: Definition, had: Definition | None, catalog: Catalog) -> Iterator[Step]:
    if had is None:
        yield _create(wanted)
        return
    changes = _changes(wanted, had)
    owner = changes.pop("owner", None)
    if changes:
        yield from _altered(wanted, had, changes, catalog)
    if owner is not None:
        arguments = {"securable_class": _CLASSES[wanted.kind], "name": wanted.name, "owner": owner}
        yield Step(f"alter {wanted.title}: owner {owner}", "alter_authorization", arguments)


def _altered(
    wanted: Definition, had: Definition, changes: Mapping[str, Any], catalog: Catalog
) -> Iterator[Step]:
    match wanted, had:
        case Contract(), Contract():
            yield from _replaced_contract(wanted, catalog)
        case SchemaCollection(), _:
            raise DefinitionError(
                f"The {wanted.title} has other documents, and a collection never changes.",
                hint="Define another one, let the message types name it, and drop this one later.",
            )
        case MessageType(), _:
            arguments = {"validation": wanted.validation, "schema_collection": wanted.schema_collection}
            yield _alter(wanted, changes, arguments)
        case Service(), Service():
            added = [each for each in wanted.contracts if each not in had.contracts]
            dropped = [each for each in had.contracts if each not in wanted.contracts]
            queue = {"queue": wanted.queue} if "queue" in changes else {}
            yield _alter(wanted, changes, queue | {"add_contracts": added, "drop_contracts": dropped})
        case Queue(activation_procedure=None), Queue(activation_procedure=str()):
            rest = {name: value for name, value in changes.items() if name not in _ACTIVATION}
            yield _alter(wanted, changes, rest | {"drop_activation": True})
        case (RemoteServiceBinding(), _) if "to_service" in changes:
            yield from (_drop(had), _create(wanted))
        case (Route(), _) if None in changes.values() or "scope" in changes:
            # ALTER ROUTE can't unset a clause.
            yield from (_drop(had), _create(wanted))
        case BrokerPriority(), _:
            # '' makes a criterion ANY; NULL would leave it.
            given = {name: "" if value is None else value for name, value in changes.items()}
            yield _alter(wanted, changes, given)
        case _:
            yield _alter(wanted, changes, changes)


def _replaced_contract(wanted: Contract, catalog: Catalog) -> Iterator[Step]:
    use = catalog.uses.get(wanted.name)
    if use and (use.services or use.has_conversations):
        who = f"the services {', '.join(use.services)}" if use.services else "conversations"
        raise DefinitionError(
            f"The {wanted.title} has other message types, and {who} use it: a contract never changes.",
            hint="Define a contract with another name, let the services accept both, begin new dialogs on it,"
            " and take the old one away when its conversations have ended.",
        )
    yield from (_drop(wanted), _create(wanted))


def _changes(wanted: Definition, had: Definition) -> dict[str, Any]:
    """What differs, by name; what a definition leaves to the database does not."""
    before = _comparable(had)
    return {
        name: getattr(wanted, name)
        for name, value in _comparable(wanted).items()
        if value != before[name] and not _is_left(wanted, name, value)
    }


def _comparable(each: Definition) -> dict[str, Any]:
    """The fields, names in no order."""
    return {
        name: frozenset(value) if isinstance(value, tuple) else value for name, value in each.values.items()
    }


def _is_left(wanted: Definition, name: str, value: Any) -> bool:
    if name == "lifetime":
        return True
    if isinstance(wanted, Queue) and name in _ACTIVATION and wanted.activation_procedure is None:
        return name != "activation_procedure"
    if name == "execute_as":
        return value in _NOT_A_ROLE
    return value is None and name in {"owner", "status", "schema", "max_queue_readers"}


def _create(wanted: Definition) -> Step:
    return Step(f"create {wanted.title}", f"create_{wanted.kind}", _given(wanted))


def _given(wanted: Definition) -> dict[str, Any]:
    """What differs from the function's defaults, so that those hold which only it knows."""
    defaults = {each.name: each.default for each in fields(wanted)}
    return {name: _plain(value) for name, value in wanted.values.items() if value != defaults[name]}


def _alter(wanted: Definition, changes: Mapping[str, Any], arguments: Mapping[str, Any]) -> Step:
    said = ", ".join(f"{name} {_said(value)}" for name, value in changes.items())
    given = {"name": wanted.name} | {name: _plain(value) for name, value in arguments.items()}
    return Step(f"alter {wanted.title}: {said}", f"alter_{wanted.kind}", given)


def _drop(had: Definition) -> Step:
    return Step(f"drop {had.title}", f"drop_{had.kind}", {"name": had.name}, is_destructive=True)


def _grant(grant: Grant, *, is_given: bool = True) -> Step:
    verb, to = ("grant", "to") if is_given else ("revoke", "from")
    on = f"{grant.permission} on {grant.securable_class.lower()} {grant.securable_name}"
    return Step(f"{verb} {on} {to} {grant.role}", verb, asdict(grant), is_destructive=not is_given)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
