-- Forgets what rollbacks were counted.
--
-- At once, even if the caller rolls back.
create or replace function broker_private.reset_marks(queue integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform setval(m.mark, 0)
  from broker_private.queues q
  cross join unnest(q.marks) as m (mark)
  where q.queue_id = queue;
end
$$;
