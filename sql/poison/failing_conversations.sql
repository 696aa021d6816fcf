-- The conversations of a queue that quarantines whose last transactions have rolled back.
--
-- It says how often in a row, in which mark that is, and which session received last. What is in
-- the marks, note_conversations says.
create or replace function broker_private.failing_conversations(queue integer)
returns table (endpoint_no bigint, failures integer, mark regclass, session_id integer)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  marks regclass[];
  noted bigint;
  states integer[];
begin
  select q.marks into marks
  from broker_private.queues q
  where q.queue_id = queue and q.is_poison_message_handling_enabled and q.poison_action = 'QUARANTINE';
  if not found then
    return;
  end if;
  states := broker_private.mark_states(marks);
  for place in 1 .. 4 loop
    failures := states[place] / 10;
    if failures > 0 then
      noted := pg_sequence_last_value(marks[place]);
      return query
      select e.endpoint_no, failing_conversations.failures, marks[place], pg_sequence_last_value(marks[place + 4])::integer
      from generate_series(0, (select x.endpoint_no >> 28 from broker_private.endpoints x order by x.endpoint_no desc limit 1)) as k (part)
      -- LIMIT 1: a probe of the key, whatever the planner believes of the table's size.
      cross join lateral (
        select x.endpoint_no from broker_private.endpoints x
        where x.endpoint_no = (k.part << 28) + (noted >> 3 & 268435455) and x.queue_id = queue and x.local_end is null
        limit 1
      ) e;
    end if;
  end loop;
end
$$;
