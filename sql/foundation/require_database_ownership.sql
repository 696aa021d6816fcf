-- Refuses a role other than the database's owner (and superusers).
--
-- What the worker trusts and listens on is theirs to say.
create or replace function broker_private.require_database_ownership(role_name name, kind text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not pg_has_role(role_name, 'pg_database_owner', 'USAGE') then
    found := broker_private.refuse(
      229, format('Role "%s" may not make, change or drop a %s.', role_name, kind), 'Ask the owner of the database.'
    );
  end if;
end
$$;
