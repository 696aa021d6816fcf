-- The schema collections, as sys.xml_schema_collections.
--
-- Ours are documents, and problem: why messages can't be validated by it. It is null if they can,
-- or if no worker has read it yet (is_read).
create or replace view broker.xml_schema_collections with (security_barrier) as
select
  c.schema_collection_id as xml_collection_id,
  c.name,
  pg_catalog.pg_get_userbyid(c.owner) as principal_id,
  c.create_date,
  c.documents,
  c.is_read,
  c.problem
from broker_private.schema_collections c
where exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, c.owner, 'USAGE')
  or exists (
    select from broker_private.granted_objects g where g.class = '<schema collection>' and g.securable_id = c.schema_collection_id
  )
  -- A client validates what it sends, so it reads the schemas of the types that it may send.
  -- IN, as the planner counts EXISTS here for each collection, and compiles what it believes to be dear.
  or c.schema_collection_id in (
    select t.schema_collection_id from broker_private.message_types t
    join broker_private.visible_message_types v on v.message_type_id = t.message_type_id
  );

comment on view broker.xml_schema_collections is
'The schema collections, as sys.xml_schema_collections.';
comment on column broker.xml_schema_collections.xml_collection_id is 'what other views refer to it by';
comment on column broker.xml_schema_collections.name is 'as create_schema_collection was told';
comment on column broker.xml_schema_collections.principal_id is 'the role that owns it';
comment on column broker.xml_schema_collections.create_date is 'when it was created';
comment on column broker.xml_schema_collections.documents is 'the XML schemas; ours';
comment on column broker.xml_schema_collections.is_read is 'whether a worker has read it yet; ours';
comment on column broker.xml_schema_collections.problem is 'why messages can''t be validated by it; NULL if they can, or no worker has read it yet. Ours';
