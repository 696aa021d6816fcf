-- Whether this database is a copy of the one that has its broker's guid.
create or replace function broker_private.is_copy()
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.broker_instance%rowtype;
begin
  select b.* into this from broker_private.broker_instance b where b.is_the_only_row;
  return this.database_oid <> (select d.oid from pg_database d where d.datname = current_database())
    or this.system_identifier is not null and this.system_identifier is distinct from broker_private.system_identifier();
end
$$;
