-- Whether the role or broker user has the permission on the object.
--
-- It has it by owning the object, or by broker.grant to it, to a role that it is a member of, or to
-- public.
create or replace function broker_private.is_permitted(
  role_name name, permission_name text, securable_class "char", securable integer, owner_role regrole
)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  role constant regrole := to_regrole(quote_ident(role_name));
begin
  if broker_private.is_owner(role_name, owner_role) then
    return true;
  end if;
  perform from broker_private.permissions p
  where p.class = securable_class and p.securable_id = securable and p.permission = permission_name
    and (
      (p.grantee).role = 0
      or pg_has_role(role, (p.grantee).role, 'USAGE')
      or role is null and (p.grantee).broker_user = role_name
    );
  return found;
end
$$;
