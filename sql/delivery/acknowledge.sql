-- hot path
-- broker_private.acknowledge(far broker, endpoints, next numbers, row ids): the far broker has
-- stored what came before these numbers. Removes those rows and moves the counters, but of dialogs
-- that are with another broker already; the end of a dialog becomes acknowledged, and the far
-- broker becomes known.
--
-- A number belongs to a row by its place, so a counter moves only by the rows that go with it, in
-- one transaction. If an END CONVERSATION WITH ERROR is dropping these rows now, or has dropped
-- them, the count is not right and the dialog is left alone: what is still there is sent again, and
-- the far broker drops what it knows. Only an Error needs no right count: the far broker takes it
-- whatever its number, as nothing comes after it. The rows are found, and counted, by the session
-- that holds the counter. Of a counter that another session has moved meanwhile the number is the
-- new one, so what is left of the rows does not go with it, unless it is all that remains.
-- Locks: the rows, skipping those that somebody is dropping; the counters. Never the endpoint's row
-- or its group: a session that sends may hold them for long.
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
  dialog record;
  moved bigint[];
  numbers bigint[];
  counters tid[];
  rows_to_go tid[];
  unknown bigint[];
  ended bigint[];
  removed integer := 0;
begin
  -- The rows of each dialog are gathered where they are found: joined to the dialogs afterwards, each
  -- row would be compared with each dialog.
  for dialog in
    select c.endpoint_no, c.old_number, c.location, c.is_known, t.messages, t.is_end, t.locations
    from (
      select
        a.endpoint_no, a.next_number, a.row_id, a.known_broker is not null as is_known, n.location, n.old_number
      from (
        select u.endpoint_no, u.next_number, u.row_id, (
          select f.far_broker_instance from broker_private.far_events f
          where f.endpoint_no = u.endpoint_no and f.event = 'B'
        ) as known_broker
        from unnest(acknowledge.endpoint_nos, acknowledge.next_numbers, acknowledge.row_ids)
          as u (endpoint_no, next_number, row_id)
        offset 0
      ) a
      cross join lateral (
        select x.ctid as location, x.next_number as old_number
        from broker_private.sequence_counters x
        where x.endpoint_no = a.endpoint_no and x.kind = 'A'
        order by x.epoch desc
        limit 1
        for update
      ) n
      where coalesce(a.known_broker, acknowledge.far_broker) = acknowledge.far_broker
    ) c
    cross join lateral (
      select
        count(*) as messages, bool_or(r.kind in ('E', 'X')) as is_end, bool_or(r.kind = 'X') as is_error,
        array_agg(r.ctid) as locations
      from (
        select m.ctid, m.kind from broker_private.transmission_messages m
        where m.endpoint_no = c.endpoint_no and m.id <= c.row_id
        for update skip locked
      ) r
    ) t
    where t.messages > 0 and (t.messages = c.next_number - c.old_number or t.is_error)
  loop
    moved := moved || dialog.endpoint_no;
    numbers := numbers || dialog.old_number + dialog.messages;
    counters := counters || dialog.location;
    rows_to_go := rows_to_go || dialog.locations;
    if not dialog.is_known then
      unknown := unknown || dialog.endpoint_no;
    end if;
    if dialog.is_end then
      ended := ended || dialog.endpoint_no;
    end if;
  end loop;
  if moved is null then
    return 0;
  end if;

  with moving as (
    update broker_private.sequence_counters n
    set next_number = c.next_number, epoch = c.next_number >> 7
    from unnest(counters, numbers) as c (location, next_number)
    where n.ctid = c.location
  )
  delete from broker_private.transmission_messages m where m.ctid = any (rows_to_go);
  get diagnostics removed = row_count;
  if unknown is not null or ended is not null then
    insert into broker_private.far_events (endpoint_no, event, far_broker_instance)
    select u.endpoint_no, 'B', acknowledge.far_broker from unnest(unknown) as u (endpoint_no)
    union all
    select u.endpoint_no, 'A', null from unnest(ended) as u (endpoint_no)
    on conflict do nothing;
  end if;
  delete from broker_private.transmission_status s where s.endpoint_no = any (moved);
  return removed;
end
$$;
