-- What a worker found when it read a schema collection: why it can't be used, or null.
create or replace function broker_private.set_schema_problem(collection integer, problem_text text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update broker_private.schema_collections c
  set is_read = true, problem = problem_text
  where c.schema_collection_id = collection and (not c.is_read or c.problem is distinct from problem_text);
end
$$;
