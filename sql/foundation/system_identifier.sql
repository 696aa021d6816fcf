-- Which server this is, as initdb made it; null where the owner of the schema may not ask for it.
create or replace function broker_private.system_identifier()
returns bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if not has_function_privilege('pg_catalog.pg_control_system()', 'execute') then
    return null;
  end if;
  return (select c.system_identifier from pg_control_system() c);
end
$$;
