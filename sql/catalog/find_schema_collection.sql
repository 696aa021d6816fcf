-- The schema collection of that name, or error 208.
create or replace function broker_private.find_schema_collection(collection_name text)
returns broker_private.schema_collections
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.schema_collections%rowtype;
begin
  select c.* into this from broker_private.schema_collections c where c.name = collection_name;
  if this.schema_collection_id is null then
    found := broker_private.refuse(
      208, format('The schema collection "%s" is not found.', coalesce(collection_name, 'NULL')),
      'Names are compared byte by byte; broker.xml_schema_collections lists them, broker.create_schema_collection makes one.'
    );
  end if;
  return this;
end
$$;
