-- hot path
-- broker_private.take(destination, lane, lanes, max messages, max bytes, paused, largest body,
-- by age, in flight, rows, numbers): the next batch for a destination. One without rows
-- if nothing waits.
--
-- A batch in which nothing is out of the ordinary is put together by take_plain. Then nothing is
-- paused or in flight, and no body is large. All fits and leaves in the order in which it came, and
-- the far side has ended nothing. All else is take_fully's, which says what each argument and
-- column is, and why a batch may be taken again.
-- Locks: the counters of dialogs of which nothing has gone, in the order of their endpoints.
-- Plan: the head of transmission_messages_destination; the rest by key.
create or replace function broker_private.take(
  destination integer, lane integer, lanes integer, max_messages integer, max_bytes bigint, paused bigint[],
  largest_body bigint default null, by_age boolean default false,
  in_flight_endpoints bigint[] default '{}', in_flight_rows bigint[] default '{}', in_flight_numbers bigint[] default '{}'
)
returns broker_private.batch
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
  batch broker_private.batch;
begin
  if paused = '{}' and in_flight_endpoints = '{}' and not by_age then
    batch := broker_private.take_plain(destination, lane, lanes, max_messages, max_bytes, largest_body, '{}');
    -- It says that none is large, unless it leaves the batch to take_fully.
    if batch.large_levels is not null then
      return batch;
    end if;
  end if;
  select
    t.endpoint_nos, t.conversation_ids, t.from_initiator, t.from_services, t.to_services, t.to_brokers, t.contracts,
    t.expirations, t.encrypted, t.type_names, t.dialog_index, t.type_index, t.sequence_numbers, t.kinds, t.bodies,
    t.row_ids, t.owners, t.far_users, t.bindings, t.established, t.session_keys, t.acknowledged, t.sent_at, t.level,
    t.large_endpoint_nos, t.large_levels
  into batch
  from broker_private.take_fully(
    take.destination, take.lane, take.lanes, take.max_messages, take.max_bytes, take.paused, take.largest_body,
    take.by_age, take.in_flight_endpoints, take.in_flight_rows, take.in_flight_numbers
  ) t;
  -- A worker that is older than this function reads these as arrays in any case.
  batch.large_endpoint_nos := coalesce(batch.large_endpoint_nos, '{}');
  batch.large_levels := coalesce(batch.large_levels, '{}');
  return batch;
end
$$;
