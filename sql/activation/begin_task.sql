-- Makes this session the queue reader of a task; see begin_task_for.
-- Locks: as begin_task_for.
create or replace function broker_private.begin_task(task bigint)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return broker_private.begin_task_for(task, pg_backend_pid(), session_user);
end
$$;
