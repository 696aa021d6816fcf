-- Moves what waits for a queue of this database, when it was turned on or got a new service.
--
-- What a worker must look at goes on waiting for it.
create or replace function broker_private.deliver_waiting(queue integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.deliver_dialog(w.endpoint_no)
  from broker_private.local_dialogs_waiting() w
  where w.queue_id = queue
  order by w.first_id;
  perform broker_private.release_messages(array_agg(distinct i.endpoint_no))
  from broker_private.incomplete_messages i
  join broker_private.endpoints e on e.endpoint_no = i.endpoint_no
  where e.queue_id = queue
  having count(*) > 0;
end
$$;
