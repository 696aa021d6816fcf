-- broker_private.deliver_local(well-formed, malformed): moves what waits on the dialogs within this database: for a queue that was off, or for
-- a worker's XML check, whose results it takes as lists of row ids. Returns how many messages moved.
create or replace function broker_private.deliver_local(well_formed bigint[], malformed bigint[])
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  waiting record;
  moved integer := 0;
begin
  for waiting in
    select t.endpoint_no
    from broker_private.destinations d
    cross join lateral broker_private.route_of(d.service_name, d.broker_instance) r
    join lateral (
      select m.endpoint_no, min(m.id) as first_id
      from broker_private.transmission_messages m
      where m.destination_no = d.destination_no
      group by m.endpoint_no
    ) t on true
    where r.address = 'LOCAL'
    order by t.first_id
  loop
    moved := moved + broker_private.deliver_dialog(waiting.endpoint_no, well_formed, malformed);
  end loop;
  return moved;
end
$$;
