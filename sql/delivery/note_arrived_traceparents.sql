-- Notes the trace contexts of messages that deliver has put into queues.
--
-- It does so in the same transaction. most is how many those are at most. What is no context is
-- left out: a partner wrote it. A message that came before, and was received meanwhile, is not
-- there to note it for.
-- Plan: the newest entries of messages_group, of each dialog.
create or replace function broker_private.note_arrived_traceparents(
  conversation_ids uuid[], from_initiator boolean[], sequence_numbers bigint[], contexts text[], most integer
)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
as $$
begin
  insert into broker_private.traceparents (endpoint_no, queuing_order, noted_at, traceparent)
  select e.endpoint_no, m.id, broker_private.clock(), d.contexts[array_position(d.numbers, m.sequence_number)]
  from (
    select
      c.conversation_id, c.is_from_initiator, array_agg(c.sequence_number) as numbers, array_agg(c.context) as contexts
    from unnest(conversation_ids, from_initiator, sequence_numbers, contexts)
      as c (conversation_id, is_from_initiator, sequence_number, context)
    where broker_private.valid_traceparent(c.context) is not null
    group by c.conversation_id, c.is_from_initiator
  ) d
  cross join lateral (
    select x.endpoint_no, x.group_no, x.priority from broker_private.endpoints x
    where x.conversation_id = d.conversation_id and x.is_initiator = not d.is_from_initiator
    limit 1
  ) e
  cross join lateral (
    select x.id, x.sequence_number
    from broker_private.messages x
    where x.group_no = e.group_no and x.precedence = 10 - e.priority and x.endpoint_no = e.endpoint_no and x.urgency = 2
    order by x.id desc
    limit most
  ) m
  where m.sequence_number = any (d.numbers)
  on conflict do nothing;
end
$$;
