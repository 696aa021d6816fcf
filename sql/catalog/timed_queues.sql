-- The queues that timers wait for, without those that are off.
--
-- Plan: conversation_timers_due, from one queue to the next.
create or replace function broker_private.timed_queues()
returns table (queue_id integer)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  queue_id := -1;
  loop
    queue_id := (
      select t.queue_id from broker_private.conversation_timers t
      where t.queue_id > timed_queues.queue_id
      order by t.queue_id
      limit 1
    );
    exit when queue_id is null;
    continue when exists (
      select from broker_private.queues q where q.queue_id = timed_queues.queue_id and not q.is_enqueue_enabled
    );
    return next;
  end loop;
end
$$;
