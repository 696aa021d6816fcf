-- broker_private.is_owner(role, owner): whether the role may act as the owner: it is the owner, a member of it, the owner
-- of the database, or a superuser. Both may be principals that are no database roles; such a one acts only as itself.
-- One expression without a sub-select, so that it is evaluated where it is called.
create or replace function broker_private.is_owner(role_name name, owner_name name)
returns boolean
language sql stable
begin atomic
  select coalesce(
    role_name = owner_name
    or pg_catalog.pg_has_role(pg_catalog.to_regrole(pg_catalog.quote_ident(role_name)), 'pg_database_owner', 'USAGE')
    or pg_catalog.pg_has_role(
      pg_catalog.to_regrole(pg_catalog.quote_ident(role_name)), pg_catalog.to_regrole(pg_catalog.quote_ident(owner_name)), 'USAGE'
    ),
    false
  );
end;
