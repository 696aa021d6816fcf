-- How many bytes may still be kept of what comes early or in pieces from a broker.
--
-- The broker is that at an endpoint's far side. 0 or less is no room. is_first: what comes in
-- pieces on this dialog is the oldest such message of that broker. It may go on all the same, or
-- none of them would ever be whole.
--
-- 128 MB of one broker, 512 MB of all. A message counts as 16 kB at least: however small they are,
-- a look meets 32,000 at most. Batches that are stored at the same time don't see each other, so
-- each may go beyond by what it brings.
create or replace function broker_private.early_room(endpoint bigint, out room bigint, out is_first boolean)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
begin atomic
  with mine as materialized (
    select coalesce(
      (
        select f.far_broker_instance from broker_private.far_events f
        where f.endpoint_no = e.endpoint_no and f.event = '<broker known>'
        limit 1
      ),
      e.far_broker_instance
    ) as broker
    from broker_private.endpoints e
    where e.endpoint_no = early_room.endpoint
  ),
  held as materialized (
    select
      h.endpoint_no, h.is_whole, h.id, greatest(16384, case when h.is_whole then h.size else h.stored_bytes end) as bytes,
      coalesce(
        (
          select f.far_broker_instance from broker_private.far_events f
          where f.endpoint_no = h.endpoint_no and f.event = '<broker known>'
          limit 1
        ),
        (select e.far_broker_instance from broker_private.endpoints e where e.endpoint_no = h.endpoint_no limit 1)
      ) as broker
    from broker_private.early_messages h
  )
  select
    least(
      134217728 - coalesce(sum(h.bytes) filter (where h.broker is not distinct from m.broker), 0),
      536870912 - coalesce(sum(h.bytes), 0)
    )::bigint,
    coalesce(
      min(h.id) filter (where not h.is_whole and h.broker is not distinct from m.broker and h.endpoint_no = early_room.endpoint)
        = min(h.id) filter (where not h.is_whole and h.broker is not distinct from m.broker),
      false
    )
  from mine m
  left join held h on true
  group by m.broker;
end;
