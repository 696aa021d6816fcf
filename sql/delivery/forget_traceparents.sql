-- Removes the trace contexts of messages that the far broker has stored.
create or replace function broker_private.forget_traceparents(endpoint_nos bigint[], row_ids bigint[])
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
  delete from broker_private.traceparents t
  using unnest(endpoint_nos, row_ids) as m (endpoint_no, row_id)
  where t.endpoint_no = m.endpoint_no and t.queuing_order = m.row_id;
end
$$;
