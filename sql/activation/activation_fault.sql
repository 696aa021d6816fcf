-- The number of what is wrong with a queue's activation procedure by now.
--
-- 9614: it is gone, 9620: it is a function, 9653: it has parameters. Null if it can be called.
create or replace function broker_private.activation_fault(queue integer)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.activation_target(q.activation_procedure, q.view_schema)
  from broker_private.queues q
  where q.queue_id = queue and q.activation_procedure is not null;
  return null;
exception
  when sqlstate 'S9614' or sqlstate 'S9620' or sqlstate 'S9653' then
    return substr(sqlstate, 2)::integer;
end
$$;
