-- Moves what waits on the dialogs within this database, for a queue that was off.
--
-- Returns how many messages moved.
create or replace function broker_private.deliver_local()
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  moved integer;
begin
  select sum(broker_private.deliver_dialog(w.endpoint_no)) into moved
  from (select l.endpoint_no from broker_private.local_dialogs_waiting() l order by l.first_id) w;
  perform broker_private.note_local_reasons();
  return coalesce(moved, 0);
end
$$;
