-- Drops the permissions of dropped roles, and says so.
-- Why: they give no right. But a dump would show them as bare numbers, and a number may be another
-- role's in another server.
create or replace function broker_private.forget_dropped_roles()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this record;
begin
  for this in
    delete from broker_private.permissions p
    where (p.grantee).role <> 0 and not exists (select from pg_roles r where r.oid = (p.grantee).role)
    returning (p.grantee).role::oid as role, p.permission
  loop
    raise notice 'The role with oid % is dropped: so is its permission %.', this.role, this.permission;
  end loop;
  for this in
    delete from broker_private.worker_roles w
    where not exists (select from pg_roles r where r.oid = w.role_name)
    returning w.role_name::oid as role
  loop
    raise notice 'The worker role with oid % is dropped.', this.role;
  end loop;
end
$$;
