-- broker.service_message_types: the message types, as sys.service_message_types. Validation N none,
-- E empty, X XML, and ours: J JSON.
create or replace view broker.service_message_types with (security_barrier) as
select
  t.name,
  t.message_type_id,
  pg_catalog.pg_get_userbyid(t.owner) as principal_id,
  t.validation::text as validation,
  case t.validation when 'N' then 'BINARY' when 'E' then 'EMPTY' when 'J' then 'JSON' else 'XML' end as validation_desc,
  t.schema_collection_id as xml_collection_id
from broker_private.message_types t
where exists (select from broker_private.visible_message_types v where v.message_type_id = t.message_type_id);
