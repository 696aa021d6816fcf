-- broker_private.is_owner(role, owner): whether the role may act as the owner: it is the owner, a member of it, the owner
-- of the database, or a superuser. The owner may be a principal that is no database role.
create or replace function broker_private.is_owner(role_name name, owner_name name)
returns boolean
language sql stable
begin atomic
  select
    role_name = owner_name
    or pg_catalog.pg_has_role(role_name, 'pg_database_owner', 'USAGE')
    or exists (
      select from pg_catalog.pg_roles r
      where r.rolname = owner_name and pg_catalog.pg_has_role(role_name, r.oid, 'USAGE')
    );
end;
