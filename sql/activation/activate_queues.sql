-- A worker's look at the monitors: the readers that it is to start now.
--
-- Each has a row in activated_tasks, which its session takes over in begin_task. Until then the
-- session that calls this holds it, so a worker that dies in between leaves no slot taken. The name
-- of the procedure is quoted; execute_as is the role that runs it.
-- Locks: monitors, skipping those that others hold.
create or replace function broker_private.activate_queues()
returns table (task_id bigint, queue_id integer, queue_name text, activation_procedure text, execute_as name)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  this record;
begin
  if broker_private.broker_problem() is not null then
    return;
  end if;
  for this in
    select q.queue_id, q.name, q.activation_procedure, broker_private.name_of_role(coalesce(q.execute_as, q.owner)) as execute_as
    from broker_private.queues q
    join broker_private.queue_monitors m on m.queue_id = q.queue_id
    where q.is_activation_enabled and q.is_receive_enabled
      and broker_private.name_of_role(coalesce(q.execute_as, q.owner)) is not null
      and (
        m.state <> 'INACTIVE'
        or case
          when q.has_floors then broker_private.has_arrivals(q.queue_id)
          -- EXISTS may be planned as a hash of the whole table.
          else (select true from broker_private.messages x where x.queue_id = q.queue_id limit 1)
        end
        or exists (select from broker_private.activated_tasks t where t.queue_id = q.queue_id)
      )
    order by q.queue_id
  loop
    return query
    insert into broker_private.activated_tasks (queue_id, pid, login, server_start, procedure_name, execute_as, started_at)
    select this.queue_id, pg_backend_pid(), session_user, pg_postmaster_start_time(), this.activation_procedure, this.execute_as, broker_private.clock()
    from generate_series(1, broker_private.step_monitor(this.queue_id))
    returning activated_tasks.task_id, this.queue_id, this.name, this.activation_procedure, this.execute_as;
  end loop;
end
$$;
