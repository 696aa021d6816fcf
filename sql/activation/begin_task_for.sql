-- Makes a session the queue reader of a task that activate_queues gave.
--
-- Returns false if the task is not to run any more. Then its queue or activation was turned off or
-- dropped, or its slot was given up. The reader may be another session than the caller's, one that
-- has no right of a worker's.
-- Locks: the monitor's row, and then the task's, as step_monitor.
create or replace function broker_private.begin_task_for(task bigint, reader integer, reader_login name)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  queue integer;
begin
  perform from broker_private.queue_monitors m
  where m.queue_id = (select t.queue_id from broker_private.activated_tasks t where t.task_id = task)
  for update;
  update broker_private.activated_tasks t
  set pid = reader, has_begun = true, login = reader_login, started_at = broker_private.clock()
  where t.task_id = task
  returning t.queue_id into queue;
  if not exists (
    select from broker_private.queues q where q.queue_id = queue and q.is_activation_enabled and q.is_receive_enabled
  ) then
    delete from broker_private.activated_tasks t where t.task_id = task;
    return false;
  end if;
  update broker_private.queue_monitors m set procedures_invoked = m.procedures_invoked + 1 where m.queue_id = queue;
  return true;
end
$$;
