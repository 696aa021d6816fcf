-- The schema collections that no worker has read yet.
create or replace function broker_private.schema_collections_to_read()
returns setof integer
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select c.schema_collection_id from broker_private.schema_collections c where not c.is_read order by c.schema_collection_id;
end
$$;
