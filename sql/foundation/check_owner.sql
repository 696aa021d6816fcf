-- broker_private.check_owner(name): refuses an owner that is no role of this server.
create or replace function broker_private.check_owner(owner_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.check_role_name('owner', owner_name);
  if not exists (select from pg_roles r where r.rolname = owner_name) then
    perform broker_private.refuse(
      208, format('The role "%s" is not found.', owner_name), 'Name an existing role, capitals as they are stored; SELECT rolname FROM pg_roles lists them.'
    );
  end if;
end
$$;
