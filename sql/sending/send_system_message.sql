-- SEND by the broker itself, of a body that it has made and need not check.
-- Locks: the group's row.
create or replace function broker_private.send_system_message(handle uuid, type_id integer, content bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  found := broker_private.place_messages(broker_private.lock_group_of(handle), type_id, array[content], true, null);
end
$$;
