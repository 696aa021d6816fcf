-- Turns the broker on, here: from now on a copy of this database is told from it.
--
-- Plans that were copied name transactions of another server: they go, with the mark that held for
-- all of them. What restarts the sequence is undone by a rollback, as setval is not.
-- Locks: in a copy, the rows of the groups that have a plan, and the sequence of the mark. So who
-- has sent or received waits for it, and it for him.
create or replace function broker_private.enable_broker()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if broker_private.is_copy() then
    update broker_private.groups g
    set send_handle = null, receive_plan = null
    where g.send_handle is not null or (g.receive_plan).endpoint_no is not null;
    update broker_private.endpoints e set send_types = null where e.send_types is not null;
    alter sequence broker_private.plan_mark restart;
  end if;
  update broker_private.broker_instance b
  set
    is_broker_enabled = true,
    database_oid = (select d.oid from pg_database d where d.datname = current_database()),
    system_identifier = broker_private.system_identifier();
end
$$;
