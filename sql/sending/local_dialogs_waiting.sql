-- The dialogs that wait in the transmission queue for a queue here that is on.
--
-- The oldest come first. chosen: only these are looked at, else all that wait.
-- Plan: local_destinations; without chosen, what waits for them, by
-- transmission_messages_destination; for each dialog transmission_messages_endpoint and endpoints
-- by key.
create or replace function broker_private.local_dialogs_waiting(chosen bigint[] default null)
returns table (endpoint_no bigint, queue_id integer, first_id bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if broker_private.broker_problem() is not null then
    return;
  end if;
  if chosen is null then
    chosen := array(
      select distinct m.endpoint_no
      from broker_private.local_destinations() d
      cross join lateral (
        select t.endpoint_no from broker_private.transmission_messages t where t.destination_no = d.destination_no offset 0
      ) m
    );
  end if;
  return query
  select w.endpoint_no, q.queue_id, t.id
  from unnest(chosen) as w (endpoint_no)
  -- LIMIT 1: a probe of the key for each dialog that waits, whatever the planner believes of the tables' sizes.
  cross join lateral (
    select m.id from broker_private.transmission_messages m where m.endpoint_no = w.endpoint_no order by m.id limit 1
  ) t
  cross join lateral (
    select x.conversation_id, x.is_initiator, x.far_service from broker_private.endpoints x where x.endpoint_no = w.endpoint_no limit 1
  ) e
  left join lateral (
    select x.queue_id from broker_private.endpoints x
    where x.conversation_id = e.conversation_id and x.is_initiator <> e.is_initiator
    limit 1
  ) f on true
  left join lateral (
    select x.queue_id from broker_private.services x where x.name = e.far_service limit 1
  ) s on true
  cross join lateral (
    select x.queue_id from broker_private.queues x where x.queue_id = coalesce(f.queue_id, s.queue_id) and x.is_enqueue_enabled limit 1
  ) q
  order by t.id;
end
$$;
