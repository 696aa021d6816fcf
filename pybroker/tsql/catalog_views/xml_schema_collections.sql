-- sys.xml_schema_collections: schema collections.
select v.xml_collection_id, v.name, v.principal_id, v.create_date::timestamp(3) as create_date
from broker.xml_schema_collections v
