-- broker_private.is_permitted(role, permission, class, securable, owner): whether the role has the permission on the object,
-- by owning it or by broker.grant to it, to a role that it is a member of, or to public.
create or replace function broker_private.is_permitted(
  role_name name, permission_name text, securable_class "char", securable integer, owner_name name
)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if broker_private.is_owner(role_name, owner_name) then
    return true;
  end if;
  perform from broker_private.permissions p
  where p.class = securable_class and p.securable_id = securable and p.permission = permission_name
    and (
      p.grantee in (role_name, 'public')
      or pg_has_role(to_regrole(quote_ident(role_name)), to_regrole(quote_ident(p.grantee)), 'USAGE')
    );
  return found;
end
$$;
