"""Definitions: what a database should have, as typed objects; what differs is a plan, and then is applied.

`objects` says what can be defined, `catalog` what a database has, `planning` what to do about the difference.
None of them talks to a database: the client runs the catalog's queries and the plan's steps.
"""

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
)
from pybroker.definitions.planning import DefinitionError, Plan, Step

__all__ = [
    "BrokerPriority",
    "Contract",
    "Definition",
    "DefinitionError",
    "Grant",
    "MessageType",
    "Plan",
    "Queue",
    "RemoteServiceBinding",
    "Route",
    "SchemaCollection",
    "Service",
    "Step",
]
