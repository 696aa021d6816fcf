-- broker_private.is_owner(role, owner): whether the role may act as the owner: it is the owner, a member of it, the owner
-- of the database, or a superuser. Both may be principals that are no database roles; such a one acts only as itself.
create or replace function broker_private.is_owner(role_name name, owner_name name)
returns boolean
language sql stable
begin atomic
  select
    role_name = owner_name
    or exists (
      select from pg_catalog.pg_roles m
      left join pg_catalog.pg_roles r on r.rolname = owner_name
      where m.rolname = role_name
        and (
          pg_catalog.pg_has_role(m.oid, 'pg_database_owner', 'USAGE')
          or pg_catalog.pg_has_role(m.oid, r.oid, 'USAGE')
        )
    );
end;
