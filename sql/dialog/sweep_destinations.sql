-- Removes destinations that no dialog and no message needs any more, as others choose their names.
--
-- It walks over all endpoints once an hour, at most 10,000 in a call, and notes under which
-- destinations they are. Then it walks over the destinations, as many in a call, and removes those
-- that were not met in an hour before the walk began. One that somebody needs all the same, who
-- saw it before, transmission_work makes anew.
-- Locks: the walk's row, which it leaves if another sweep has it.
-- Plan: endpoints and destinations by number; transmission_messages_destination.
create or replace function broker_private.sweep_destinations()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  most constant integer := 10000;
  moment constant timestamp with time zone := broker_private.clock();
  walk broker_private.destination_walk%rowtype;
  last bigint;
  met integer[];
begin
  select w.* into walk from broker_private.destination_walk w for update skip locked;
  if not found or walk.place = 0 and walk.began_at > moment - interval '1 hour' then
    return;
  end if;
  if walk.place = 0 then
    walk.began_at := moment;
  end if;
  if walk.place >= 0 then
    select max(x.endpoint_no), array_agg(distinct x.destination_no) into last, met
    from (
      select e.endpoint_no, e.destination_no
      from broker_private.endpoints e
      where e.endpoint_no > walk.place
      order by e.endpoint_no
      limit most
    ) x;
    update broker_private.destinations d
    set met_at = walk.began_at
    where d.destination_no = any (met) and d.met_at < walk.began_at;
    walk.place := coalesce(last, -2147483648);
  else
    select min(x.destination_no) into last
    from (
      select d.destination_no
      from broker_private.destinations d
      where d.destination_no > 0 and d.destination_no < -walk.place
      order by d.destination_no desc
      limit most
    ) x;
    delete from broker_private.destinations d
    where d.destination_no >= last and d.destination_no < -walk.place and d.met_at < walk.began_at - interval '1 hour'
      and not exists (select from broker_private.transmission_messages t where t.destination_no = d.destination_no)
      and not exists (select from broker_private.queues q where q.queue_id = d.queue_id);
    walk.place := coalesce(-last, 0);
  end if;
  update broker_private.destination_walk w set place = walk.place, began_at = walk.began_at;
end
$$;
