-- broker_private.settle_poison(): what a worker does each second about rollbacks: turns off the queues that five of them have turned off, and returns their names.
create or replace function broker_private.settle_poison()
returns table (queue_name text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select p.name
  from (
    select q.queue_id, q.name
    from broker_private.queues q
    where q.is_receive_enabled and broker_private.is_poisoned(q.queue_id)
    offset 0
  ) p
  where broker_private.disable_poisoned_queue(p.queue_id);
end
$$;
