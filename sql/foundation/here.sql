-- The database and the server that this session is in, as one text.
-- Why: immutable, so that a statement asks for it once, when it is planned: neither changes while a
-- session lasts. Where the owner may not ask for the server, it is the database alone.
create or replace function broker_private.here()
returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select d.oid from pg_database d where d.datname = current_database())
    || coalesce(' ' || broker_private.system_identifier(), '');
end
$$;
