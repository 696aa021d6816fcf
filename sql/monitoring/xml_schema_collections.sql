-- broker.xml_schema_collections: the schema collections, as sys.xml_schema_collections, and ours: documents, and problem: why messages can't be
-- validated by it; null if they can, or no worker has read it yet (is_read).
create or replace view broker.xml_schema_collections as
select
  c.schema_collection_id as xml_collection_id,
  c.name,
  pg_catalog.pg_get_userbyid(c.owner) as principal_id,
  c.create_date,
  c.documents,
  c.is_read,
  c.problem
from broker_private.schema_collections c;
