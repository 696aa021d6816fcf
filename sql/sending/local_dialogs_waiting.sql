-- The dialogs that wait in the transmission queue for a queue here that is on.
--
-- The oldest come first.
-- Plan: local_destinations; what waits for them, by transmission_messages_destination; endpoints by
-- key for each dialog of it.
create or replace function broker_private.local_dialogs_waiting()
returns table (endpoint_no bigint, queue_id integer, first_id bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  select t.endpoint_no, q.queue_id, t.first_id
  from broker_private.local_destinations() d
  cross join lateral (
    select m.endpoint_no, min(m.id) as first_id
    from broker_private.transmission_messages m
    where m.destination_no = d.destination_no
    group by m.endpoint_no
  ) t
  -- LIMIT 1: a probe of the key for each dialog that waits, whatever the planner believes of the tables' sizes.
  cross join lateral (
    select x.conversation_id, x.is_initiator, x.far_service from broker_private.endpoints x where x.endpoint_no = t.endpoint_no limit 1
  ) e
  left join lateral (
    select x.queue_id from broker_private.endpoints x
    where x.conversation_id = e.conversation_id and x.is_initiator <> e.is_initiator
    limit 1
  ) f on true
  left join broker_private.services s on s.name = e.far_service
  join broker_private.queues q on q.queue_id = coalesce(f.queue_id, s.queue_id) and q.is_enqueue_enabled
  where (select broker_private.broker_problem()) is null
  order by t.first_id;
end
$$;
