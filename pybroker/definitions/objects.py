"""What can be defined: one class for each CREATE statement, with the arguments of its SQL function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, ClassVar, Literal

from pybroker.duration import Duration, as_timedelta

Names = Sequence[str]
Validation = Literal["NONE", "EMPTY", "WELL_FORMED_XML", "VALID_XML", "VALID_JSON"]


@dataclass(frozen=True)
class Definition:
    """One object of the broker. Fields mean what the arguments of its SQL function do.

    An owner of None is whoever applies the definition, and leaves the owner of an object that is there.

    Attributes:
        kind: what the object is called in SQL and in a plan.
        name: up to 128 characters, compared byte for byte.
    """

    kind: ClassVar[str]
    name: str

    def __post_init__(self) -> None:
        """Take any sequence for a tuple of names, and seconds for a timedelta; refuse a string of names."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type == "Names":
                if isinstance(value, str):
                    raise TypeError(f"{each.name} of {self.name!r} is a string: give a list of names.")
                object.__setattr__(self, each.name, tuple(value))
            elif str(each.type).startswith("Duration") and value is not None:
                object.__setattr__(self, each.name, as_timedelta(value))

    @property
    def title(self) -> str:
        """What it is called in a plan: ``message type //shop/order``."""
        return f"{self.kind.replace('_', ' ')} {self.name}"

    @property
    def values(self) -> dict[str, Any]:
        """Its fields by name; lists of names are tuples."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, kw_only=True)
class SchemaCollection(Definition):
    """``broker.create_schema_collection``: XML schemas for message types with validation VALID_XML.

    Attributes:
        documents: XML schemas, each a whole document. A collection never changes: other documents need
            another name.
    """

    kind: ClassVar[str] = "schema_collection"
    documents: Names


@dataclass(frozen=True, kw_only=True)
class MessageType(Definition):
    """``broker.create_message_type``: a name for messages, and how their bodies are validated.

    Attributes:
        validation: what a body must be; VALID_JSON is ours, the others are Service Broker's.
        schema_collection: the name of a SchemaCollection, with VALID_XML and with nothing else.
        owner: a role; None is whoever applies it.
    """

    kind: ClassVar[str] = "message_type"
    validation: Validation = "NONE"
    schema_collection: str | None = None
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class Contract(Definition):
    """``broker.create_contract``: which message types each side of a conversation may send.

    A type stands in one of the three lists, and at least one in the first or the last.

    Attributes:
        sent_by_initiator: names of types that only the side that begins may send.
        sent_by_target: names of types that only the other side may send.
        sent_by_any: names of types that both may send.
        owner: a role; None is whoever applies it.
    """

    kind: ClassVar[str] = "contract"
    sent_by_initiator: Names = ()
    sent_by_target: Names = ()
    sent_by_any: Names = ()
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class Queue(Definition):
    """``broker.create_queue``: a queue and its view.

    Attributes:
        status: whether it is on. None, unless given, leaves a queue off that somebody, or poison, turned off.
        retention: whether messages stay, with status 0, until their conversation's side ends.
        activation_procedure: the procedure that a worker starts when messages wait, with its schema; None for
            no internal activation.
        max_queue_readers: how many of it run at most, 0 to 32767.
        activation_status: whether they are started.
        poison_message_handling: whether five rollbacks in a row turn the queue off.
        poison_action: what they do: turn off the queue, or quarantine the one conversation.
        scaling: one more reader every 5 seconds as SQL Server does, or as many as there are groups.
        execute_as: the role that the procedure runs as; SELF and OWNER are taken when the queue is created.
        watchdog: seconds or a timedelta after which a reader that never receives is given up; 0 is never.
        schema: where the view is; None is the first of the search path, and leaves a view where it is.
    """

    kind: ClassVar[str] = "queue"
    status: bool | None = None
    retention: bool = False
    activation_procedure: str | None = None
    max_queue_readers: int | None = None
    activation_status: bool = True
    execute_as: str = "SELF"
    poison_message_handling: bool = True
    poison_action: Literal["DISABLE_QUEUE", "QUARANTINE"] = "DISABLE_QUEUE"
    scaling: Literal["SERVICE_BROKER", "BACKLOG"] = "SERVICE_BROKER"
    watchdog: Duration = timedelta(seconds=60)
    owner: str | None = None
    schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class Service(Definition):
    """``broker.create_service``: an address for conversations; without contracts it only begins them.

    Attributes:
        queue: the name of the queue that its messages come into.
        contracts: names of the contracts that it accepts as a target.
        owner: a role; None is whoever applies it.
    """

    kind: ClassVar[str] = "service"
    queue: str
    contracts: Names = ()
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class Route(Definition):
    """``broker.create_route``: where messages for a service go.

    Attributes:
        address: ``LOCAL``, ``TRANSPORT``, or ``tcp://host:port`` of a worker's endpoint.
        service_name: the far service; None is any.
        broker_instance: the guid of the far broker; None is any.
        mirror_address: the other address of a database with a standby, ``tcp://host:port``.
        scope: DATABASE for what this database sends; WORKER for what comes from outside to its worker.
        lifetime: seconds or a timedelta that it holds from when it is created; that of a route that is there
            isn't compared.
    """

    kind: ClassVar[str] = "route"
    address: str
    service_name: str | None = None
    broker_instance: str | None = None
    lifetime: Duration | None = None
    mirror_address: str | None = None
    owner: str | None = None
    scope: Literal["DATABASE", "WORKER"] = "DATABASE"


@dataclass(frozen=True, kw_only=True)
class RemoteServiceBinding(Definition):
    """``broker.create_remote_service_binding``: whose certificate secures the dialogs to a far service.

    Attributes:
        to_service: the name of the far service.
        user_name: who owns the far side's certificate in this database; need not be a role.
        anonymous: whether the far side is not told who begins the dialogs.
        owner: a role; None is whoever applies it.
    """

    kind: ClassVar[str] = "remote_service_binding"
    to_service: str
    user_name: str
    anonymous: bool = False
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class BrokerPriority(Definition):
    """``broker.create_broker_priority``: the priority of dialogs that match; a criterion of None is ANY.

    Attributes:
        contract_name: the contract of the dialog.
        local_service_name: the service on this side.
        remote_service_name: the service on the far side.
        priority_level: 1 to 10; 10 is the most urgent.
    """

    kind: ClassVar[str] = "broker_priority"
    contract_name: str | None = None
    local_service_name: str | None = None
    remote_service_name: str | None = None
    priority_level: int = 5


@dataclass(frozen=True)
class Grant:
    """``broker.grant``: a right on an object, for a role, ``public`` or a broker user.

    Attributes:
        permission: SEND goes with SERVICE, RECEIVE with QUEUE, REFERENCES with the others.
        securable_class: SERVICE, QUEUE, CONTRACT, MESSAGE TYPE or XML SCHEMA COLLECTION.
        securable_name: of the object.
        role: a role, ``public``, or a name that is no role: the user of a certificate.
    """

    permission: Literal["SEND", "RECEIVE", "REFERENCES"]
    securable_class: Literal["SERVICE", "QUEUE", "CONTRACT", "MESSAGE TYPE", "XML SCHEMA COLLECTION"]
    securable_name: str
    role: str


def repeated(definitions: Sequence[Definition | Grant]) -> str | None:
    """Say which object is defined twice; None if none is."""
    seen = set()
    for each in definitions:
        key = (each.kind, each.name) if isinstance(each, Definition) else each
        if key in seen:
            return each.title if isinstance(each, Definition) else repr(each)
        seen.add(key)
    return None
