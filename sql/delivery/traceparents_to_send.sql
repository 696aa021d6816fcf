-- The trace contexts of messages that a worker has taken.
--
-- The messages are given by endpoint and row. Returns their places in the list, and the contexts.
-- Plan: the primary key, once for each message, if there is any context at all.
create or replace function broker_private.traceparents_to_send(
  endpoint_nos bigint[], row_ids bigint[], out places integer[], out traceparents text[]
)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
  perform from broker_private.traceparents t limit 1;
  if found then
    select array_agg(m.place), array_agg(t.traceparent) into places, traceparents
    from unnest(endpoint_nos, row_ids) with ordinality as m (endpoint_no, row_id, place)
    join broker_private.traceparents t
      on t.endpoint_no = m.endpoint_no and t.queuing_order = m.row_id;
  end if;
end
$$;
