-- Moves what waits on the dialogs within this database, for a queue that was off.
--
-- Returns how many messages moved: who gets more than none calls it again. What waits for a queue
-- that is on waits behind none of what waits for another. Who sends much to a queue that is off
-- makes no look long: it waits under a destination that is passed by.
--
-- A hundred dialogs are looked at in turn, wherever they wait. What one of them waits for may have
-- moved to another queue, or follow what can't move.
-- Plan: the first 1,000 messages of each destination whose queue is on, by
-- transmission_messages_destination; transmission_messages_endpoint, from one dialog to the next.
create or replace function broker_private.deliver_local()
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  began constant bigint := coalesce(pg_sequence_last_value('broker_private.local_turn'), 0);
  local_nos integer[];
  open_nos integer[];
  place bigint := began;
  place_destination integer;
  chosen bigint[];
  moved integer;
begin
  select array_agg(d.destination_no), array_agg(d.destination_no) filter (where d.is_open) into local_nos, open_nos
  from broker_private.local_destinations() d;
  if local_nos is null then
    return 0;
  end if;
  chosen := array(
    select distinct h.endpoint_no
    from unnest(open_nos) d (destination_no)
    cross join lateral (
      select m.endpoint_no from broker_private.transmission_messages m
      where m.destination_no = d.destination_no
      order by m.precedence, m.id
      limit 1000
    ) h
  );
  for step in 1 .. 100 loop
    select t.endpoint_no, t.destination_no into place, place_destination
    from broker_private.transmission_messages t
    where t.endpoint_no > place
    order by t.endpoint_no, t.id
    limit 1;
    exit when place is null;
    if place_destination = any (local_nos) and place <> all (chosen) then
      chosen := chosen || place;
    end if;
  end loop;
  -- Written only where not all of them fit into one turn.
  if coalesce(place, 0) <> began then
    perform setval('broker_private.local_turn', coalesce(place, 0));
  end if;
  select sum(broker_private.deliver_dialog(w.endpoint_no)) into moved
  from (select l.endpoint_no from broker_private.local_dialogs_waiting(chosen) l order by l.first_id) w;
  perform broker_private.note_local_reasons();
  return coalesce(moved, 0);
end
$$;
