-- hot path
-- broker_private.acknowledge_one(far broker, endpoint, next number, row id): what acknowledge does,
-- for one dialog. Returns how many rows are gone.
--
-- Null, with nothing changed, is for acknowledge to do. So it is where the dialog is with another
-- broker, an end is among the rows, or their count is not right.
-- Locks: the counter; the rows, skipping those that somebody is dropping.
-- Plan: each table by its key, in a statement of its own.
-- Why: the statements of acknowledge, which join, cost 80,000 instructions more where there is one
-- dialog.
create or replace function broker_private.acknowledge_one(
  far_broker uuid, endpoint bigint, next_number bigint, row_id bigint
)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
  known uuid;
  counter tid;
  number bigint;
  locations tid[];
  is_plain boolean;
begin
  select f.far_broker_instance into known
  from broker_private.far_events f
  where f.endpoint_no = endpoint and f.event = 'B';
  if known <> far_broker then
    return null;
  end if;
  select n.ctid, n.next_number into counter, number
  from broker_private.sequence_counters n
  where n.endpoint_no = endpoint and n.kind = 'A'
  order by n.epoch desc
  limit 1
  for update;
  select array_agg(r.ctid), bool_and(r.kind = 'M') into locations, is_plain
  from (
    select m.ctid, m.kind from broker_private.transmission_messages m
    where m.endpoint_no = endpoint and m.id <= row_id
    for update skip locked
  ) r;
  if (is_plain and number + cardinality(locations) = acknowledge_one.next_number) is not true then
    return null;
  end if;
  update broker_private.sequence_counters n
  set next_number = acknowledge_one.next_number, epoch = acknowledge_one.next_number >> 7
  where n.ctid = counter;
  delete from broker_private.transmission_messages m where m.ctid = any (locations);
  if known is null then
    insert into broker_private.far_events (endpoint_no, event, far_broker_instance)
    values (endpoint, 'B', far_broker)
    on conflict do nothing;
  end if;
  delete from broker_private.transmission_status s where s.endpoint_no = endpoint;
  return cardinality(locations);
end
$$;
