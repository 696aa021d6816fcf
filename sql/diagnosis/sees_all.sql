-- Whether a diagnosis tells the role of every object.
--
-- As the view all_seeing, for the role that a function was told.
create or replace function broker_private.sees_all(reader name)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_has_role(reader, 'pg_database_owner', 'USAGE')
    or pg_has_role(reader, 'pg_monitor', 'USAGE')
    or exists (
      select from broker_private.worker_roles w
      join pg_roles r on r.oid = w.role_name
      where pg_has_role(reader, r.oid, 'USAGE')
    );
end
$$;
