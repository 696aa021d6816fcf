-- Gives dialogs that wait for a service without a broker to one broker each.
--
-- It does so at random and for good. With null, it gives back to the service alone what was given
-- to a broker that no route leads to. moved: the dialogs that were given; stays: those that went
-- somewhere already and were never answered, which no other broker may get. A dialog that a broker
-- has acknowledged goes to that one. What somebody else holds is left for the next time, so this
-- waits for nobody. A call looks at the dialogs of 1,000 messages, the next one at those behind
-- them: what stays or is held stops no other.
-- Locks: as SEND and take do. First the group, then the endpoint's own row and the counter that
-- take holds while it notes where a dialog goes. Last the destination.
-- Plan: transmission_messages_destination, from where the last call ended, for each precedence.
create or replace function broker_private.spread_dialogs(
  destination integer, broker_instances uuid[], out moved integer, out stays integer
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
  most constant integer := 1000;
  place broker_private.destinations%rowtype;
  e broker_private.endpoints%rowtype;
  endpoint bigint;
  endpoint_nos bigint[];
  looked_at bigint;
  last bigint;
  chosen uuid;
  new_place integer;
begin
  moved := 0;
  stays := 0;
  select d.* into place from broker_private.destinations d where d.destination_no = destination;
  select array_agg(n.endpoint_no order by n.first_id), sum(n.messages), max(n.last_id)
  into endpoint_nos, looked_at, last
  from (
    select h.endpoint_no, min(h.id) as first_id, max(h.id) as last_id, count(*) as messages
    from (
      select w.endpoint_no, w.id
      from generate_series(0, 9) as l (precedence)
      cross join lateral (
        select t.endpoint_no, t.id from broker_private.transmission_messages t
        where t.destination_no = destination and t.precedence = l.precedence and t.id > place.spread_after
        order by t.id
        limit most
      ) w
      order by w.id
      limit most
    ) h
    group by h.endpoint_no
  ) n;
  last := case when looked_at = most then last else 0 end;
  foreach endpoint in array coalesce(endpoint_nos, '{}') loop
    perform
    from broker_private.groups g
    join broker_private.endpoints x on x.group_no = g.group_no
    where x.endpoint_no = endpoint
    for update of g skip locked;
    continue when not found;
    perform from broker_private.sequence_counters n where n.endpoint_no = endpoint and n.kind = '<next acknowledged>' for update skip locked;
    continue when not found;
    select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
    select f.far_broker_instance into chosen from broker_private.far_events f where f.endpoint_no = endpoint and f.event = '<broker known>';
    if chosen is null then
      if exists (select from broker_private.far_events f where f.endpoint_no = endpoint and f.event = '<first taken>') then
        stays := stays + 1;
        continue;
      end if;
      chosen := coalesce(e.far_broker_instance, broker_instances[1 + floor(random() * cardinality(broker_instances))::integer]);
    end if;
    continue when e.destination_no <> destination or chosen is not distinct from place.broker_instance;
    new_place := broker_private.destination_of(e.far_service, chosen);
    update broker_private.endpoints x set destination_no = new_place where x.endpoint_no = endpoint;
    update broker_private.transmission_messages t set destination_no = new_place where t.endpoint_no = endpoint;
    moved := moved + 1;
  end loop;
  -- Written only where not all of it fits into one look.
  update broker_private.destinations d set spread_after = last where d.destination_no = destination and d.spread_after <> last;
end
$$;
