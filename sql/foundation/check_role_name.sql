-- Refuses a role's name that is missing, empty or longer than 63 bytes.
--
-- PostgreSQL would cut it, and it would be another's. Arguments that name roles are text, not name,
-- for the same reason.
create or replace function broker_private.check_role_name(kind text, role_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.check_name(kind, role_name);
  if octet_length(role_name) > 63 then
    found := broker_private.refuse(
      103, format('The name of the %s that starts with "%s" is too long: %s bytes.', kind, left(role_name, 32), octet_length(role_name)),
      'The name of a role has at most 63 bytes.'
    );
  end if;
end
$$;
