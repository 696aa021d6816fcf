-- broker_private.note_arrived_traceparents(conversations, sides, numbers, contexts): notes the
-- trace contexts of messages that deliver has stored in the same transaction. What is no context is
-- left out: a partner wrote it.
create or replace function broker_private.note_arrived_traceparents(
  conversation_ids uuid[], from_initiator boolean[], sequence_numbers bigint[], contexts text[]
)
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
  insert into broker_private.traceparents (endpoint_no, is_place, number, noted_at, traceparent)
  select e.endpoint_no, false, m.sequence_number, broker_private.clock(), broker_private.valid_traceparent(m.context)
  from unnest(conversation_ids, from_initiator, sequence_numbers, contexts)
    as m (conversation_id, is_from_initiator, sequence_number, context)
  join broker_private.endpoints e
    on e.conversation_id = m.conversation_id and e.is_initiator = not m.is_from_initiator
  where broker_private.valid_traceparent(m.context) is not null
  on conflict do nothing;
end
$$;
