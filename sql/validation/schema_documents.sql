-- The documents of a schema collection, for the worker that validates by it.
create or replace function broker_private.schema_documents(collection integer)
returns text[]
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select c.documents from broker_private.schema_collections c where c.schema_collection_id = collection);
end
$$;
