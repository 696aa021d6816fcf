-- broker_private.enable_broker(): turns the broker on, here: from now on a copy of this database is told from it.
create or replace function broker_private.enable_broker()
returns void
language sql
begin atomic
  update broker_private.broker_instance b
  set
    is_broker_enabled = true,
    database_oid = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()),
    system_identifier = broker_private.system_identifier();
end;
