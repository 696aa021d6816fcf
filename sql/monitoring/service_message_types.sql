-- The message types, as sys.service_message_types.
--
-- Validation N none, E empty, X XML, and ours: J JSON.
create or replace view broker.service_message_types with (security_barrier) as
select
  t.name,
  t.message_type_id,
  pg_catalog.pg_get_userbyid(t.owner) as principal_id,
  t.validation::text as validation,
  case t.validation when '<no validation>' then 'BINARY' when '<empty>' then 'EMPTY' when '<json>' then 'JSON' else 'XML' end as validation_desc,
  t.schema_collection_id as xml_collection_id
from broker_private.message_types t
where exists (select from broker_private.visible_message_types v where v.message_type_id = t.message_type_id);

comment on view broker.service_message_types is
'The message types, as sys.service_message_types.';
comment on column broker.service_message_types.name is 'as create_message_type was told';
comment on column broker.service_message_types.message_type_id is 'what contracts and messages refer to';
comment on column broker.service_message_types.principal_id is 'the role that owns it';
comment on column broker.service_message_types.validation is 'N none, E empty, X XML, and ours J JSON';
comment on column broker.service_message_types.validation_desc is 'BINARY, EMPTY, XML or JSON';
comment on column broker.service_message_types.xml_collection_id is 'the schemas that bodies must be valid by; NULL without';
