-- The next open dialogs with other databases behind this endpoint, by destination.
--
-- They are in transmission_work's columns. They are those of as many endpoints as are looked at in
-- one go. No row: there are none behind it. A broker that is known is named: what is asked goes to
-- nobody else.
-- Plan: endpoints by number; far events by endpoint.
create or replace function broker_private.dialogs_to_ask(after bigint, most integer)
returns table (
  destination_no integer, service_name text, broker_instance uuid, address text, mirror_address text, is_local boolean, broker_instances uuid[],
  is_reply boolean, is_missing boolean, problem text, has_status boolean, is_stranded boolean, endpoint_nos bigint[]
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  looked_at bigint := dialogs_to_ask.after;
  last bigint;
begin
  if broker_private.broker_problem() is not null then
    return;
  end if;
  loop
    select max(n.endpoint_no) into last
    from (
      select e.endpoint_no from broker_private.endpoints e where e.endpoint_no > looked_at order by e.endpoint_no limit dialogs_to_ask.most
    ) n;
    exit when last is null;
    return query
    select g.destination_no, d.service_name, g.far_broker, r.address, r.mirror_address, r.is_local, null::uuid[],
      not g.is_initiator, false, r.problem, false, false, g.endpoint_nos
    from (
      select e.destination_no, e.is_initiator, coalesce(e.far_broker_instance, b.far_broker_instance) as far_broker,
        array_agg(e.endpoint_no order by e.endpoint_no) as endpoint_nos
      from broker_private.endpoints e
      left join broker_private.far_events b on b.endpoint_no = e.endpoint_no and b.event = '<broker known>'
      where e.endpoint_no > looked_at and e.endpoint_no <= last and e.destination_no <> 0
        and e.local_end is null and e.expires_at > broker_private.clock()
        -- An initiator's path may say B until it sends again.
        and (not e.is_initiator and e.path = '<remote>' or b.endpoint_no is not null)
        and not exists (select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event in ('<far end>', '<far error>', '<refused here>'))
      group by 1, 2, 3
    ) g
    join broker_private.destinations d on d.destination_no = g.destination_no
    cross join lateral broker_private.route_of(d.service_name, g.far_broker) r;
    exit when found;
    looked_at := last;
  end loop;
end
$$;
