-- Whether a worker has a session in this database.
-- Why: broker_private.workers tells of those whose home this is, and a database may have none.
create or replace function broker_private.has_worker()
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (
    select from pg_stat_activity a
    where a.datname = current_database() and a.application_name = 'pybroker worker'
  );
end
$$;
