"""The syntax tree: a class for each statement. Trees are equal when they say the same, wherever it stands."""

from __future__ import annotations

from dataclasses import dataclass, field

from pybroker.tsql.source import Position

NOWHERE = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Name:
    """A name with its schema and its database, if they are written."""

    name: str
    schema: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What all statements have; fields that are None were not written."""

    position: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageType(Statement):
    """CREATE or ALTER MESSAGE TYPE."""

    verb: str
    name: str
    owner: str | None = None
    validation: str | None = None
    schema_collection: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract(Statement):
    """CREATE CONTRACT; usages are message types with INITIATOR, TARGET or ANY."""

    name: str
    owner: str | None = None
    usages: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A queue's ACTIVATION; `drop` stands alone."""

    status: bool | None = None
    procedure: Name | None = None
    max_queue_readers: int | None = None
    execute_as: str | None = None
    drop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Statement):
    """CREATE or ALTER QUEUE; `maintenance` stands alone: REBUILD, REORGANIZE or MOVE TO, with its options."""

    verb: str
    name: Name
    status: bool | None = None
    retention: bool | None = None
    activation: Activation | None = None
    poison_message_handling: bool | None = None
    filegroup: str | None = None
    maintenance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(Statement):
    """CREATE SERVICE."""

    name: str
    owner: str | None = None
    queue: Name
    contracts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterService(Statement):
    """ALTER SERVICE; changes are ADD or DROP, each with a contract."""

    name: str
    queue: Name | None = None
    changes: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Statement):
    """CREATE or ALTER ROUTE; the lifetime is in seconds."""

    verb: str
    name: str
    owner: str | None = None
    service_name: str | None = None
    broker_instance: str | None = None
    lifetime: int | None = None
    address: str | None = None
    mirror_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServiceBinding(Statement):
    """CREATE or ALTER REMOTE SERVICE BINDING; only CREATE has a service."""

    verb: str
    name: str
    owner: str | None = None
    to_service: str | None = None
    user: str | None = None
    anonymous: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPriority(Statement):
    """CREATE or ALTER BROKER PRIORITY; '' is ANY, and a level of 0 DEFAULT."""

    verb: str
    name: str
    contract_name: str | None = None
    local_service_name: str | None = None
    remote_service_name: str | None = None
    priority_level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(Statement):
    """DROP of what is named by `kind`, in T-SQL's words."""

    kind: str
    name: Name
