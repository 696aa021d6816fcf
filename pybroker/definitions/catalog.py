"""What a database has, read from the catalog views as the objects that would define it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
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
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The ids of system objects are below 65536.
QUERIES: Mapping[type[Definition | Grant], str] = {
    SchemaCollection: "select name, documents from broker.xml_schema_collections",
    MessageType: (
        "select t.name, case t.validation_desc when 'BINARY' then 'NONE' when 'JSON' then 'VALID_JSON'"
        " when 'XML' then case when x.name is null then 'WELL_FORMED_XML' else 'VALID_XML' end"
        " else t.validation_desc end, x.name, t.principal_id"
        " from broker.service_message_types t"
        " left join broker.xml_schema_collections x on x.xml_collection_id = t.xml_collection_id"
        " where t.message_type_id >= 65536"
    ),
    Contract: (
        "select c.name,"
        " pg_catalog.array_agg(t.name) filter (where u.is_sent_by_initiator and not u.is_sent_by_target),"
        " pg_catalog.array_agg(t.name) filter (where u.is_sent_by_target and not u.is_sent_by_initiator),"
        " pg_catalog.array_agg(t.name) filter (where u.is_sent_by_target and u.is_sent_by_initiator),"
        " c.principal_id"
        " from broker.service_contracts c"
        " join broker.service_contract_message_usages u on u.service_contract_id = c.service_contract_id"
        " join broker.service_message_types t on t.message_type_id = u.message_type_id"
        " where c.service_contract_id >= 65536 group by c.service_contract_id, c.name, c.principal_id"
    ),
    Queue: (
        "select name, is_receive_enabled and is_enqueue_enabled, is_retention_enabled, activation_procedure,"
        " max_readers, is_activation_enabled, execute_as_principal_id, is_poison_message_handling_enabled,"
        " poison_action, scaling, watchdog, principal_id, schema_id"
        " from broker.service_queues"
    ),
    Service: (
        "select s.name, q.name, pg_catalog.array_agg(c.name) filter (where c.name is not null),"
        " s.principal_id"
        " from broker.services s"
        " join broker.service_queues q on q.object_id = s.service_queue_id"
        " left join broker.service_contract_usages u on u.service_id = s.service_id"
        " left join broker.service_contracts c on c.service_contract_id = u.service_contract_id"
        " group by s.service_id, s.name, q.name, s.principal_id"
    ),
    Route: (
        "select name, address, remote_service_name, broker_instance::text, null, mirror_address,"
        " principal_id, scope"
        " from broker.routes where name not in ('AutoCreatedLocal', 'AutoCreatedWorker')"
    ),
    RemoteServiceBinding: (
        "select name, remote_service_name, remote_principal_id, is_anonymous_on, principal_id"
        " from broker.remote_service_bindings"
    ),
    BrokerPriority: (
        "select p.name, c.name, s.name, p.remote_service_name, p.priority"
        " from broker.conversation_priorities p"
        " left join broker.service_contracts c on c.service_contract_id = p.service_contract_id"
        " left join broker.services s on s.service_id = p.local_service_id"
    ),
    Grant: (
        "select p.permission_name, n.class, n.name, p.grantee_principal_id"
        " from broker.database_permissions p"
        " join ("
        "   select 17, service_id, 'SERVICE', name from broker.services"
        "   union all select 1, object_id, 'QUEUE', name from broker.service_queues"
        "   union all select 16, service_contract_id, 'CONTRACT', name from broker.service_contracts"
        "   union all select 15, message_type_id, 'MESSAGE TYPE', name from broker.service_message_types"
        "   union all select 10, xml_collection_id, 'XML SCHEMA COLLECTION', name"
        "   from broker.xml_schema_collections"
        " ) n (code, id, class, name) on n.code = p.class and n.id = p.major_id"
    ),
}
IN_USE = (
    "select c.name, array(select s.name from broker.service_contract_usages u"
    " join broker.services s on s.service_id = u.service_id"
    " where u.service_contract_id = c.service_contract_id),"
    " exists (select from broker.conversation_endpoints e where e.service_contract_id = c.service_contract_id"
    " and e.state <> 'CD')"
    " from broker.service_contracts c"
)


@dataclass(frozen=True)
class ContractUse:
    """Who uses a contract.

    Attributes:
        services: names of the services that accept it.
        has_conversations: whether a conversation has it that is not closed.
    """

    services: Sequence[str] = ()
    has_conversations: bool = False


@dataclass(frozen=True)
class Catalog:
    """What a database has.

    Attributes:
        objects: by kind and name; system objects are not in it.
        grants: what was granted on them.
        uses: of each contract.
    """

    objects: Mapping[tuple[str, str], Definition] = field(default_factory=dict)
    grants: frozenset[Grant] = frozenset()
    uses: Mapping[str, ContractUse] = field(default_factory=dict)


def catalog_of(
    rows: Mapping[type[Definition | Grant], Iterable[Sequence[Any]]], uses: Iterable[Sequence[Any]]
) -> Catalog:
    """Build the catalog from the rows of `QUERIES` and `IN_USE`."""
    objects: dict[tuple[str, str], Definition] = {}
    for kind, found in rows.items():
        if issubclass(kind, Definition):
            for row in found:
                values = zip((each.name for each in fields(kind)), row, strict=True)
                made = kind(**{name: value for name, value in values if value is not None})
                objects[kind.kind, made.name] = made
    return Catalog(
        objects,
        frozenset(Grant(*row) for row in rows[Grant]),
        {name: ContractUse(tuple(services), has_conversations) for name, services, has_conversations in uses},
    )
