-- For a worker what broker.sleep_on is for a client.
--
-- The worker sleeps on every empty queue that it starts readers for, or whose notifications it
-- sends. It sleeps on the transmission queue (0), on what waits for validation (1) and on what the
-- broker itself answers (3) too. Returns the queues that it does not sleep on: something waits
-- there, or another worker sleeps there, or it did not listen until now. Each call first gives back
-- what the last one took; so the session must be the worker's own, with no advisory lock for
-- anything else.
-- Locks: the queues' advisory locks, exclusively, for the session, if they are free.
create or replace function broker_private.sleep_on_queues()
returns integer[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  queue integer;
  awake_on integer[] := '{}';
begin
  perform pg_advisory_unlock_all();
  for queue in
    select u.queue_id from unnest(array[0, 1, 3]) as u (queue_id)
    union all
    select q.queue_id from broker_private.queues q
    where q.is_receive_enabled
      and (
        q.is_activation_enabled
        or exists (
          select from broker_private.watched_queues w where w.queue_id = q.queue_id and w.event = 'QUEUE_ACTIVATION'
        )
      )
  loop
    if not exists (select from pg_listening_channels() c where c = 'pybroker_' || queue) then
      execute format('listen %I', 'pybroker_' || queue);
      awake_on := awake_on || queue;
    elsif broker_private.has_arrivals(queue) or not pg_try_advisory_lock(broker_private.sleepers_lock(), queue) then
      awake_on := awake_on || queue;
    elsif broker_private.has_arrivals(queue) then
      perform pg_advisory_unlock(broker_private.sleepers_lock(), queue);
      awake_on := awake_on || queue;
    end if;
  end loop;
  return awake_on;
end
$$;
