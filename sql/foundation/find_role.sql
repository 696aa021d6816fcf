-- The database role of that name, or error 15151.
--
-- The name is quoted for the look-up: a bare number would be taken for an oid.
create or replace function broker_private.find_role(role_name name)
returns regrole
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  found_role constant regrole := to_regrole(quote_ident(role_name));
begin
  if found_role is null then
    found := broker_private.refuse(
      15151, format('There is no role "%s".', role_name),
      'What owns an object or runs a procedure is a role of this database server: CREATE ROLE makes one.'
    );
  end if;
  return found_role;
end
$$;
