-- The queues that timers wait for, each with its first timer; without those that are off.
--
-- Plan: conversation_timers_due, from one queue to the next.
create or replace function broker_private.timed_queues()
returns table (queue_id integer, fires_at timestamp with time zone)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  queue_id := -1;
  loop
    select t.queue_id, t.fires_at into queue_id, fires_at
    from broker_private.conversation_timers t
    where t.queue_id > timed_queues.queue_id
    order by t.queue_id, t.fires_at
    limit 1;
    exit when queue_id is null;
    continue when exists (
      select from broker_private.queues q where q.queue_id = timed_queues.queue_id and not q.is_enqueue_enabled
    );
    return next;
  end loop;
end
$$;
