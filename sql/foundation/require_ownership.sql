-- Refuses a role that may not alter or drop the object.
create or replace function broker_private.require_ownership(role_name name, owner_role regrole, kind text, object_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not broker_private.is_owner(role_name, owner_role) then
    found := broker_private.refuse(
      229, format('Role "%s" may not change the %s "%s".', role_name, kind, object_name),
      format('Ask its owner, "%s", or the owner of the database.', pg_get_userbyid(owner_role))
    );
  end if;
end
$$;
