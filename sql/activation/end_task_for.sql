-- Frees a reader's slot and tells the monitor how its procedure ended.
--
-- Returns the number of the end: 28085 queue dropped, 28086 queue or activation off, 28087 it never
-- received, 28088 error; null for a good end. Outcome: RETURNED, FAILED, FAILED_RECEIVING (in the
-- statement that receives, or before) or LOST (the session is gone); has_worked: it is known to
-- have taken messages; reader_mark: what received_mark said in its session.
-- Locks: the monitor's row, and then the task's, as step_monitor.
create or replace function broker_private.end_task_for(
  task bigint, queue integer, outcome text, has_worked boolean, reader_mark bigint
)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  moment constant timestamp with time zone := broker_private.clock();
  marks regclass;
  is_on boolean;
  started timestamp with time zone;
  is_in_vain boolean;
  has_found_nothing boolean;
  number integer;
begin
  perform from broker_private.queue_monitors m where m.queue_id = queue for update;
  delete from broker_private.activated_tasks t where t.task_id = task returning t.started_at into started;
  select q.receive_marks, q.is_activation_enabled and q.is_receive_enabled and not broker_private.is_poisoned(queue) into marks, is_on
  from broker_private.queues q
  where q.queue_id = queue;
  if not found then
    return 28085;
  elsif outcome = 'LOST' then
    update broker_private.queue_monitors m
    set state = case when m.state = 'NOTIFIED' then 'INACTIVE' else m.state end, not_before = moment + interval '1 s', tasks_aborted = m.tasks_aborted + 1
    where m.queue_id = queue;
    return 28088;
  end if;
  if outcome like 'FAILED%' then
    number := 28088;
  elsif reader_mark is null then
    number := 28087;
  end if;
  if not is_on then
    number := 28086;
  elsif outcome = 'FAILED_RECEIVING' or reader_mark is null then
    -- Stuck, as the original: a RECEIVE by somebody else, activation turned off and on, or the watchdog frees it.
    update broker_private.queue_monitors m
    set state = 'NOTIFIED', is_stuck = true, notified_mark = coalesce(pg_sequence_last_value(marks), 0), readers_wanted = greatest(m.readers_wanted - 1, 0)
    where m.queue_id = queue;
  else
    is_in_vain := outcome = 'FAILED' or not has_worked and moment - started < interval '100 ms';
    has_found_nothing := reader_mark & 1048575 = 0;
    update broker_private.queue_monitors m
    set
      -- Its RECEIVEs are in the queue's marks, too, but may have brought them back to what they were.
      state = case when m.state = 'NOTIFIED' and m.last_activated_time <= started then 'RECEIVES_OCCURRING' else m.state end,
      readers_wanted = case when has_found_nothing then greatest(m.readers_wanted - 1, 0) else m.readers_wanted end,
      last_empty_rowset_time = case when has_found_nothing then to_timestamp((reader_mark >> 20) / 1000.0) else m.last_empty_rowset_time end,
      returns_in_vain = case when is_in_vain then least(m.returns_in_vain + 1, 20) else 0 end,
      not_before = case
        when is_in_vain then moment + least(
          interval '0.25 s' * 2 ^ m.returns_in_vain, case when outcome = 'FAILED' then interval '60 s' else interval '5 s' end
        )
        else '-infinity'
      end
    where m.queue_id = queue;
  end if;
  if number in (28087, 28088) then
    update broker_private.queue_monitors m set tasks_aborted = m.tasks_aborted + 1 where m.queue_id = queue;
  end if;
  return number;
end
$$;
