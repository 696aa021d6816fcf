-- Turns a queue off that rollbacks have turned off (is_poisoned), and returns whether it did.
--
-- Its marks stay until ALTER QUEUE turns it on: if this is rolled back, the queue is off all the
-- same.
-- Locks: the queue's row, skipping it if somebody alters it now.
create or replace function broker_private.disable_poisoned_queue(queue integer)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from broker_private.queues q
  where q.queue_id = queue and (q.is_receive_enabled or q.is_enqueue_enabled)
  for update skip locked;
  if not found then
    return false;
  end if;
  update broker_private.queues q
  set is_receive_enabled = false, is_enqueue_enabled = false, modify_date = broker_private.clock()
  where q.queue_id = queue;
  perform broker_private.wake_sleepers(queue);
  perform broker_private.emit_event(queue, 'BROKER_QUEUE_DISABLED');
  return true;
end
$$;
