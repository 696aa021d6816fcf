-- The next destinations that messages wait for, and where the routes say they are.
--
-- is_reply: who waits longest there is a target's side, whose messages go straight to a database of
-- the same worker, whatever the routes say. is_stranded: a dialog near the head was given to this
-- broker instance without having named it. Nothing of it has gone, and no route names the instance
-- any more. spread_dialogs gives it back.
--
-- Who names many services makes no look long. There are at most 100 with a problem and 100 without
-- one, and the next call begins behind those. Between two that have none, at most 300 that have
-- one are walked past. running: what the worker is sending to, which is always among them.
-- Plan: transmission_messages_destination, from one destination to the next one.
create or replace function broker_private.transmission_work(running integer[] default '{}')
returns table (
  destination_no integer, service_name text, broker_instance uuid, address text, mirror_address text, is_local boolean, broker_instances uuid[],
  is_reply boolean, is_missing boolean, problem text, has_status boolean, is_stranded boolean
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  most constant integer := 100;
  most_walked constant integer := 300;
  turn regclass;
  place integer;
  began integer;
  walked integer;
  found_here integer[];
  chosen integer[] := running;
  has_begun_anew boolean;
  is_faulty boolean;
  has_fault boolean;
begin
  foreach is_faulty in array array[false, true] loop
    turn := case when is_faulty then 'broker_private.faulty_turn' else 'broker_private.flowing_turn' end::regclass;
    began := coalesce(pg_sequence_last_value(turn), 0) - 1;
    place := began;
    has_begun_anew := began = -1;
    walked := 0;
    found_here := '{}';
    while walked < most_walked and cardinality(found_here) < most loop
      place := (
        select t.destination_no from broker_private.transmission_messages t
        where t.destination_no > place
        order by t.destination_no
        limit 1
      );
      if place is null then
        place := -1;
        exit when has_begun_anew;
        has_begun_anew := true;
      end if;
      continue when place = -1;
      -- All of them have had their turn.
      if has_begun_anew and began >= 0 and place > began then
        place := began;
        exit;
      end if;
      walked := walked + 1;
      select d.transmission_status is not null into has_fault from broker_private.destinations d where d.destination_no = place;
      if not found then
        -- A sweep removed it while a transaction that had seen it was open.
        insert into broker_private.destinations (destination_no, service_name, broker_instance, met_at)
        select place, e.far_service, coalesce(b.far_broker_instance, e.far_broker_instance), broker_private.clock()
        from (
          select t.endpoint_no from broker_private.transmission_messages t
          where t.destination_no = place
          order by t.precedence, t.id
          limit 1
        ) w
        join broker_private.endpoints e on e.endpoint_no = w.endpoint_no
        left join broker_private.far_events b on b.endpoint_no = e.endpoint_no and b.event = '<broker known>'
        on conflict do nothing;
        has_fault := false;
      end if;
      if has_fault = is_faulty then
        found_here := found_here || place;
      end if;
    end loop;
    if place <> began then
      perform setval(turn, place + 1);
    end if;
    chosen := chosen || found_here;
  end loop;
  return query
  select d.destination_no, d.service_name, d.broker_instance, case when d.service_name = '' then 'LOCAL' else r.address end, r.mirror_address,
    r.is_local, r.broker_instances, not e.is_initiator, r.is_missing and e.is_initiator, case when d.service_name <> '' then r.problem end, d.transmission_status is not null,
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
      cross join lateral (
        select n.endpoint_no, n.is_initiator, n.far_broker_instance from broker_private.endpoints n where n.endpoint_no = near.endpoint_no limit 1
      ) x
      where x.is_initiator and x.far_broker_instance is null and (
        select true from broker_private.far_events f
        where f.endpoint_no = x.endpoint_no and f.event in ('<first taken>', '<broker known>')
        limit 1
      ) is null
    )
  from (select distinct u.destination_no from unnest(chosen) as u (destination_no)) c
  -- LIMIT 1: a probe of each key, whatever the planner believes of the tables' sizes.
  cross join lateral (
    select x.destination_no, x.service_name, x.broker_instance, x.transmission_status
    from broker_private.destinations x
    where x.destination_no = c.destination_no
    limit 1
  ) d
  cross join lateral (
    select t.endpoint_no
    from broker_private.transmission_messages t
    where t.destination_no = d.destination_no
    order by t.precedence, t.id
    limit 1
  ) w
  cross join lateral (
    select x.is_initiator from broker_private.endpoints x where x.endpoint_no = w.endpoint_no limit 1
  ) e
  cross join lateral broker_private.route_of(d.service_name, d.broker_instance) r;
end
$$;
