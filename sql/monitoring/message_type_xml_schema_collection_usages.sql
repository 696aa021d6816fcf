-- Which message type is validated by which schema collection.
--
-- As sys.message_type_xml_schema_collection_usages.
create or replace view broker.message_type_xml_schema_collection_usages with (security_barrier) as
select t.message_type_id, t.schema_collection_id as xml_collection_id
from broker_private.message_types t
where t.schema_collection_id is not null
  and exists (select from broker_private.visible_message_types v where v.message_type_id = t.message_type_id);

comment on view broker.message_type_xml_schema_collection_usages is
'Which message type is validated by which schema collection, as sys.message_type_xml_schema_collection_usages.';
comment on column broker.message_type_xml_schema_collection_usages.message_type_id is 'a type with validation VALID_XML';
comment on column broker.message_type_xml_schema_collection_usages.xml_collection_id is 'the collection that its bodies must be valid by';
