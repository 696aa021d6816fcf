-- broker_private.local_dialogs_waiting(): the dialogs that wait in the transmission queue for a queue of this database which is on, the oldest first.
-- Plan: one probe of transmission_messages_destination for each destination; where something waits for this database, one of transmission_messages_endpoint
-- for each dialog that waits at all, however many messages it has.
create or replace function broker_private.local_dialogs_waiting()
returns table (endpoint_no bigint, queue_id integer, first_id bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  with recursive local as materialized (
    select d.destination_no
    from broker_private.destinations d
    where (select broker_private.broker_problem()) is null
      and (select true from broker_private.transmission_messages m where m.destination_no = d.destination_no limit 1)
      and (
        d.destination_no = 0
        or (select r.address from broker_private.route_of(d.service_name, d.broker_instance) r) = 'LOCAL'
      )
  ),
  dialogs (endpoint_no) as (
    (
      select m.endpoint_no from broker_private.transmission_messages m where exists (select from local) order by m.endpoint_no limit 1
    )
    union all
    select (
      select n.endpoint_no from broker_private.transmission_messages n where n.endpoint_no > d.endpoint_no order by n.endpoint_no limit 1
    )
    from dialogs d
    where d.endpoint_no is not null
  )
  select t.endpoint_no, q.queue_id, t.id
  from dialogs d
  cross join lateral (
    select m.endpoint_no, m.id, m.destination_no
    from broker_private.transmission_messages m
    where m.endpoint_no = d.endpoint_no
    order by m.id
    limit 1
  ) t
  join local l on l.destination_no = t.destination_no
  join broker_private.endpoints e on e.endpoint_no = t.endpoint_no
  left join broker_private.endpoints f on f.conversation_id = e.conversation_id and f.is_initiator <> e.is_initiator
  left join broker_private.services s on s.name = e.far_service
  join broker_private.queues q on q.queue_id = coalesce(f.queue_id, s.queue_id) and q.is_enqueue_enabled
  order by t.id;
end
$$;
