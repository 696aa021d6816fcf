-- hot path
-- The far broker has stored what came before these numbers.
--
-- Removes those rows and moves the counters, but of dialogs that are with another broker already.
-- The end of a dialog becomes acknowledged, and the far broker becomes known.
--
-- A number belongs to a row by its place, so a counter moves only by the rows that go with it, in
-- one transaction. While an END CONVERSATION WITH ERROR drops these rows, or after it has, the
-- count is not right, and the dialog is left alone. What is still there is sent again, and the far
-- broker drops what it knows. Only an Error needs no right count: the far broker takes it whatever
-- its number, as nothing comes after it. The rows are found, and counted, by the session that holds
-- the counter. Another session may have moved a counter meanwhile. Then its number is the new one,
-- and what is left of the rows does not go with it, unless it is all that remains.
-- Locks: the rows, skipping those that somebody is dropping; the counters. Never the endpoint's row
-- or its group: a session that sends may hold them for long.
-- Plan: the far brokers by an array of keys; counter and rows of each dialog by key.
create or replace function broker_private.acknowledge(
  far_broker uuid, endpoint_nos bigint[], next_numbers bigint[], row_ids bigint[]
)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_mergejoin = off
set enable_hashjoin = off
as $$
declare
  known bigint;
  endpoint bigint;
  next_number bigint;
  number bigint;
  counter tid;
  locations tid[];
  is_end boolean;
  moved bigint[];
  numbers bigint[];
  counters tid[];
  rows_to_go tid[];
  ended bigint[];
  removed integer := 0;
begin
  perform from broker_private.far_events f
  where f.endpoint_no = any (acknowledge.endpoint_nos) and f.event = '<broker known>'
    and f.far_broker_instance = acknowledge.far_broker;
  get diagnostics known = row_count;
  if known < cardinality(endpoint_nos) then
    perform from broker_private.far_events f
    where f.endpoint_no = any (acknowledge.endpoint_nos) and f.event = '<broker known>'
      and f.far_broker_instance <> acknowledge.far_broker;
    if found then
      select
        array_agg(u.endpoint_no order by u.place), array_agg(u.next_number order by u.place),
        array_agg(u.row_id order by u.place)
      into endpoint_nos, next_numbers, row_ids
      from unnest(acknowledge.endpoint_nos, acknowledge.next_numbers, acknowledge.row_ids)
        with ordinality as u (endpoint_no, next_number, row_id, place)
      where coalesce(
        (
          select f.far_broker_instance from broker_private.far_events f
          where f.endpoint_no = u.endpoint_no and f.event = '<broker known>'
        ), acknowledge.far_broker
      ) = acknowledge.far_broker;
    end if;
  end if;
  -- The rows of each dialog are gathered where they are found: joined to the dialogs afterwards,
  -- each row would be compared with each dialog.
  for endpoint, next_number, number, counter, locations, is_end in
    select u.endpoint_no, u.next_number, n.old_number, n.location, t.locations, t.is_end
    from unnest(acknowledge.endpoint_nos, acknowledge.next_numbers, acknowledge.row_ids)
      as u (endpoint_no, next_number, row_id)
    cross join lateral (
      select x.ctid as location, x.next_number as old_number
      from broker_private.sequence_counters x
      where x.endpoint_no = u.endpoint_no and x.kind = '<next acknowledged>'
      order by x.epoch desc
      limit 1
      for update
    ) n
    cross join lateral (
      select array_agg(r.ctid) as locations, bool_or(r.kind <> '<message>') as is_end
      from (
        select m.ctid, m.kind from broker_private.transmission_messages m
        where m.endpoint_no = u.endpoint_no and m.id <= u.row_id
        for update skip locked
      ) r
    ) t
  loop
    continue when locations is null;
    number := number + cardinality(locations);
    if is_end then
      perform from broker_private.transmission_messages m
      where m.ctid = any (locations) and m.kind = '<error>';
    end if;
    continue when number <> next_number and not (is_end and found);
    moved := moved || endpoint;
    numbers := numbers || number;
    counters := counters || counter;
    rows_to_go := rows_to_go || locations;
    if is_end then
      ended := ended || endpoint;
    end if;
  end loop;
  if moved is null then
    return 0;
  end if;

  update broker_private.sequence_counters n
  set next_number = c.number, epoch = c.number >> 7
  from unnest(counters, numbers) as c (location, number)
  where n.ctid = c.location;
  delete from broker_private.transmission_messages m where m.ctid = any (rows_to_go);
  get diagnostics removed = row_count;
  if known < cardinality(endpoint_nos) or ended is not null then
    insert into broker_private.far_events (endpoint_no, event, far_broker_instance)
    select u.endpoint_no, '<broker known>', acknowledge.far_broker from unnest(moved) as u (endpoint_no)
    union all
    select u.endpoint_no, '<end acknowledged>', null from unnest(ended) as u (endpoint_no)
    on conflict do nothing;
  end if;
  delete from broker_private.transmission_status s where s.endpoint_no = any (moved);
  return removed;
end
$$;
