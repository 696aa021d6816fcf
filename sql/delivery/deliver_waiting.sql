-- broker_private.deliver_waiting(queue): moves what waits for a queue of this database, when it was turned on or got a new service.
-- What needs a worker's XML check goes on waiting for it.
create or replace function broker_private.deliver_waiting(queue integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  endpoint bigint;
begin
  for endpoint in
    select e.endpoint_no
    from broker_private.destinations d
    join lateral (
      select t.endpoint_no, min(t.id) as first_id
      from broker_private.transmission_messages t
      where t.destination_no = d.destination_no
      group by t.endpoint_no
    ) t on true
    join broker_private.endpoints e on e.endpoint_no = t.endpoint_no and e.path = 'B'
    where d.service_name in (select s.name from broker_private.services s where s.queue_id = deliver_waiting.queue)
    order by t.first_id
  loop
    perform broker_private.deliver_dialog(endpoint, '{}', '{}');
  end loop;
end
$$;
