-- broker_private.worker_activations(): the queues whose activation procedure should run: activation is on, the queue is on, and a message is ready.
-- The name of the procedure is quoted; execute_as is the role that runs it.
create or replace function broker_private.worker_activations()
returns table (queue_id integer, queue_name text, activation_procedure text, max_readers integer, execute_as name)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  return query
  select q.queue_id, q.name, q.activation_procedure, q.max_readers, coalesce(q.execute_as, q.owner)
  from broker_private.queues q
  where q.is_activation_enabled and q.is_receive_enabled and q.max_readers > 0
    and (select broker_private.broker_problem()) is null
    and exists (select from broker_private.messages m where m.queue_id = q.queue_id);
end
$$;
