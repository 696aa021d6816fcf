-- Whether anything is in the queue.
--
-- For 0, in the transmission queue; for 1, among the incomplete messages. Volatile, so that each
-- call looks anew.
create or replace function broker_private.has_arrivals(queue integer)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return case
    -- In the order of an index: from a table's beginning it might walk all that has gone.
    when queue = 0 then (
      select t.destination_no from broker_private.transmission_messages t
      where t.destination_no >= 0
      order by t.destination_no
      limit 1
    ) is not null
    when queue = 1 then exists (select from broker_private.incomplete_messages)
    when exists (select from broker_private.queues q where q.queue_id = queue and q.has_floors)
      then (select m.id from broker_private.first_message(queue) m) is not null
    else exists (select from broker_private.messages m where m.queue_id = queue)
  end;
end
$$;
