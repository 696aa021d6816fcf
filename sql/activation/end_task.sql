-- Ends a task of this session's, as end_task_for tells.
--
-- But for LOST it is called by the reader's own session: only there is its mark.
-- Locks: as end_task_for.
create or replace function broker_private.end_task(task bigint, queue integer, outcome text, has_worked boolean)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return broker_private.end_task_for(task, queue, outcome, has_worked, broker_private.received_mark(queue));
end
$$;
