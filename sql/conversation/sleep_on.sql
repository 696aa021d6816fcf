-- To be asked outside a transaction by a session that found nothing to receive.
--
-- True: the session sleeps on the queue from now on, and is notified when a message was committed
-- into it; it listens already. False: it is not notified, and looks again after a pause of its own.
-- Then messages are there, another session sleeps on the queue or is sending to it, or this one did
-- not listen until now. broker.wake_up(queue) ends what a true began. Ours; pybroker's client waits
-- with it.
--
-- A sleeper must hear of a message however its look and the sender's commit interleave, and a SEND
-- must cost nothing while nobody sleeps. So:
-- - A sender takes the queue's advisory lock, shared, by trying, and keeps it until its transaction
--   ends. If it can't, somebody sleeps, and it notifies. PostgreSQL delivers that after the commit.
-- - A sleeper listens first. Then it takes the lock, exclusively, by trying, for its session, and
--   looks once more. When it has the lock, each sender that had taken its own before has ended, so
--   that look sees what it sent. Each one that comes later notifies. It never waits for the lock,
--   as one long transaction that sends would make it deaf. A session that ends, however it ends,
--   gives its lock back. Any role can take an advisory lock: on this one that makes senders notify,
--   or sleepers look by themselves, and nothing else.
-- Locks: the queue's advisory lock, exclusively, for the session, if it is free.
-- Errors: 208 queue, 9617 queue disabled, 229.
create or replace function broker.sleep_on(queue text)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  is_asleep boolean;
begin
  loop
    is_asleep := broker_private.sleep_on(current_user, queue);
    exit when is_asleep is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return is_asleep;
end
$$;

create or replace function broker_private.sleep_on(caller name, queue_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  stack text;
  queue integer;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_receive(caller, queue_name, null, null, null, interval '0');
  select q.queue_id into queue from broker_private.queues q where q.name = queue_name;
  if not exists (select from pg_listening_channels() c where c = 'pybroker_' || queue) then
    execute format('listen %I', 'pybroker_' || queue);
    return false;
  elsif broker_private.has_arrivals(queue) or not pg_try_advisory_lock(broker_private.sleepers_lock(), queue) then
    return false;
  elsif broker_private.has_arrivals(queue)
    or (select q.is_receive_enabled from broker_private.queues q where q.queue_id = queue) is not true then
    perform pg_advisory_unlock(broker_private.sleepers_lock(), queue);
    return false;
  end if;
  return true;
end
$$;

comment on function broker.sleep_on(text) is
$$Ours, for clients that wait without a snapshot: asked outside a transaction by a session that
found nothing to receive and LISTENs. broker.wake_up ends what a true began.

queue: that the session found empty.

Returns: true: the session is notified when a message is committed into the queue; false: look
  again after a pause.
Rights: RECEIVE on the queue.
Locks: an advisory lock of the queue, for the session, if it is free.
Errors: 208, 229, 9617
Example: select broker.sleep_on('warehouse'), broker.wake_up('warehouse');$$;
