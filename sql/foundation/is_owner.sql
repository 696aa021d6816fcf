-- Whether the role may act as the owner.
--
-- It is the owner, a member of it, the owner of the database, or a superuser. A broker user owns
-- nothing; of an owner that was dropped only the last two are left. One expression without a
-- sub-select, so that it is evaluated where it is called.
create or replace function broker_private.is_owner(role_name name, owner_role regrole)
returns boolean
language sql stable
begin atomic
  select coalesce(
    pg_catalog.pg_has_role(pg_catalog.to_regrole(pg_catalog.quote_ident(role_name)), owner_role, 'USAGE')
    or pg_catalog.pg_has_role(pg_catalog.to_regrole(pg_catalog.quote_ident(role_name)), 'pg_database_owner', 'USAGE'),
    false
  );
end;
