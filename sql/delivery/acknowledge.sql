-- hot path
-- broker_private.acknowledge(far broker, endpoints, next numbers, row ids): the far broker has stored what came before these numbers. Removes
-- those rows and moves the counters, but of dialogs that are with another broker already; the end of a dialog becomes acknowledged, and the far broker becomes known.
--
-- A number belongs to a row by its place, so a counter moves only by the rows that go with it, in one transaction. If an
-- END CONVERSATION WITH ERROR is dropping these rows now, or has dropped them, the count is not right and the dialog is left alone:
-- what is still there is sent again, and the far broker drops what it knows. Only an Error needs no right count: the far
-- broker takes it whatever its number, as nothing comes after it.
-- A counter that another session has moved since this statement began can't be moved by it, as its new version is not visible: then nothing of
-- the dialog is removed either.
-- Locks: the rows, skipping those that somebody is dropping; the counters. Never the endpoint's row or its group: a session that sends may hold them for long.
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
as $$
declare
  removed integer;
begin
  with acknowledged as materialized (
    select a.endpoint_no, a.next_number, a.row_id
    from unnest(acknowledge.endpoint_nos, acknowledge.next_numbers, acknowledge.row_ids) as a (endpoint_no, next_number, row_id)
    -- NOT EXISTS may be planned as a hash of the whole table.
    where coalesce((
      select f.far_broker_instance from broker_private.far_events f where f.endpoint_no = a.endpoint_no and f.event = 'B'
    ), acknowledge.far_broker) = acknowledge.far_broker
  ),
  counters as materialized (
    select a.endpoint_no, a.next_number, a.row_id, c.location, c.next_number as old_number
    from acknowledged a
    cross join lateral (
      select n.ctid as location, n.next_number
      from broker_private.sequence_counters n
      where n.endpoint_no = a.endpoint_no and n.kind = 'A'
      order by n.epoch desc
      limit 1
      for update
    ) c
  ),
  sent as materialized (
    select c.endpoint_no, t.location, t.kind
    from counters c
    cross join lateral (
      select m.ctid as location, m.kind
      from broker_private.transmission_messages m
      where m.endpoint_no = c.endpoint_no and m.id <= c.row_id
      order by m.id
      for update skip locked
    ) t
  ),
  complete as materialized (
    select c.endpoint_no, c.location, count(*) as messages, bool_or(s.kind in ('E', 'X')) as is_end
    from counters c
    join sent s on s.endpoint_no = c.endpoint_no
    group by c.endpoint_no, c.location, c.next_number, c.old_number
    having count(*) = c.next_number - c.old_number or bool_or(s.kind = 'X')
  ),
  moved as (
    update broker_private.sequence_counters n
    set next_number = n.next_number + c.messages, epoch = (n.next_number + c.messages) >> 7
    from complete c
    where n.ctid = c.location
    returning c.endpoint_no, c.is_end
  ),
  known as (
    insert into broker_private.far_events (endpoint_no, event, far_broker_instance)
    select c.endpoint_no, 'B', acknowledge.far_broker from moved c
    union all
    select c.endpoint_no, 'A', null from moved c where c.is_end
    on conflict do nothing
  ),
  cleared as (
    delete from broker_private.transmission_status s using moved c where s.endpoint_no = c.endpoint_no
  ),
  gone as (
    delete from broker_private.transmission_messages m
    where m.ctid = any (array(select s.location from sent s join moved c on c.endpoint_no = s.endpoint_no))
    returning 1
  )
  select count(*) into removed from gone;
  return removed;
end
$$;
