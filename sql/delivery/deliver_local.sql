-- broker_private.deliver_local(well-formed, malformed): moves what waits on the dialogs within this database: for a queue that was off, or for
-- a worker's XML check, whose results it takes as lists of row ids. Returns how many messages moved.
create or replace function broker_private.deliver_local(well_formed bigint[], malformed bigint[])
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  moved integer;
begin
  select sum(broker_private.deliver_dialog(w.endpoint_no, well_formed, malformed)) into moved
  from (select l.endpoint_no from broker_private.local_dialogs_waiting() l order by l.first_id) w;
  return coalesce(moved, 0);
end
$$;
