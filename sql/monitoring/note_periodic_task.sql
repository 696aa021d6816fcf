-- A worker says that a periodic task ran now, and why it failed if it did.
-- Locks: the task's row.
create or replace function broker_private.note_periodic_task(task_name text, task_period interval, task_description text, task_error text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into broker_private.periodic_tasks (name, period, description, last_run, last_failure, last_error)
  values (
    task_name, task_period, task_description, broker_private.clock(), case when task_error is not null then broker_private.clock() end,
    left(task_error, 1000)
  )
  on conflict (name) do update set
    period = excluded.period,
    description = excluded.description,
    last_run = excluded.last_run,
    last_failure = coalesce(excluded.last_failure, periodic_tasks.last_failure),
    last_error = coalesce(excluded.last_error, periodic_tasks.last_error);
end
$$;
