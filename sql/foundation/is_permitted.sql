-- broker_private.is_permitted(role, permission, class, securable, owner): whether the role has the permission on the object,
-- by owning it or by broker.grant to it, to a role that it is a member of, or to public.
create or replace function broker_private.is_permitted(
  role_name name, permission_name text, securable_class "char", securable integer, owner_name name
)
returns boolean
language sql stable
begin atomic
  select
    broker_private.is_owner(role_name, owner_name)
    or exists (
      select from broker_private.permissions p
      left join pg_catalog.pg_roles m on m.rolname = role_name
      left join pg_catalog.pg_roles r on r.rolname = p.grantee
      where p.class = securable_class and p.securable_id = securable and p.permission = permission_name
        and (p.grantee in (role_name, 'public') or pg_catalog.pg_has_role(m.oid, r.oid, 'USAGE'))
    );
end;
