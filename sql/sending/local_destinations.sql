-- The destinations that are in this database: those of its queues and of its services.
--
-- is_open: the queue is on, as far as the destination tells. 0 is what waited before queues had
-- destinations.
-- Plan: destinations_name, from the services, so that it takes no longer where others have named
-- thousands of services that are nowhere.
create or replace function broker_private.local_destinations()
returns table (destination_no integer, is_open boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  select d.destination_no, coalesce(q.is_enqueue_enabled, true)
  from broker_private.destinations d
  left join lateral (
    select x.is_enqueue_enabled from broker_private.queues x where x.queue_id = d.queue_id limit 1
  ) q on true
  -- LIMIT 1, here and below: a probe of an index for each, whatever the planner believes of the tables' sizes.
  where d.service_name = '' and (
    select true from broker_private.transmission_messages t where t.destination_no = d.destination_no limit 1
  )
  union all
  select d.destination_no, q.is_enqueue_enabled
  from broker_private.services s
  cross join lateral (
    select x.is_enqueue_enabled from broker_private.queues x where x.queue_id = s.queue_id limit 1
  ) q
  cross join lateral (
    -- OFFSET 0: only those are asked for their route.
    select x.destination_no, x.service_name, x.broker_instance
    from broker_private.destinations x
    where x.service_name = s.name and (
      select true from broker_private.transmission_messages t where t.destination_no = x.destination_no limit 1
    )
    offset 0
  ) d
  where s.name is not null
    and (select r.address from broker_private.route_of(d.service_name, d.broker_instance) r) = 'LOCAL';
end
$$;
