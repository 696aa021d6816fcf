-- The destinations that messages wait for, and where the routes say they are.
--
-- is_reply: who waits longest there is a target's side, whose messages go straight to a database of
-- the same worker, whatever the routes say. is_stranded: a dialog near the head was given to this
-- broker instance without having named it. Nothing of it has gone, and no route names the instance
-- any more. spread_dialogs gives it back.
create or replace function broker_private.transmission_work()
returns table (
  destination_no integer, service_name text, broker_instance uuid, address text, mirror_address text, is_local boolean, broker_instances uuid[],
  is_reply boolean, is_missing boolean, problem text, has_status boolean, is_stranded boolean
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  select d.destination_no, d.service_name, d.broker_instance, case when d.destination_no = 0 then 'LOCAL' else r.address end, r.mirror_address,
    r.is_local, r.broker_instances, not e.is_initiator, r.is_missing and e.is_initiator, case when d.destination_no <> 0 then r.problem end, d.transmission_status is not null,
    d.broker_instance is not null and e.is_initiator and not r.is_exact and exists (
      select
      from (
        select distinct h.endpoint_no
        from (
          select t.endpoint_no from broker_private.transmission_messages t
          where t.destination_no = d.destination_no
          order by t.precedence, t.id
          limit 1000
        ) h
      ) near
      join broker_private.endpoints x on x.endpoint_no = near.endpoint_no
      where x.is_initiator and x.far_broker_instance is null and not exists (
        select from broker_private.far_events f where f.endpoint_no = x.endpoint_no and f.event in ('<first taken>', '<broker known>')
      )
    )
  from broker_private.destinations d
  cross join lateral (
    select t.endpoint_no
    from broker_private.transmission_messages t
    where t.destination_no = d.destination_no
    order by t.precedence, t.id
    limit 1
  ) w
  join broker_private.endpoints e on e.endpoint_no = w.endpoint_no
  cross join lateral broker_private.route_of(d.service_name, d.broker_instance) r;
end
$$;
