-- The queue of that name, or error 208.
--
-- The broker's own queue is nobody's to use.
create or replace function broker_private.find_queue(queue_name text)
returns broker_private.queues
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  found_queue broker_private.queues%rowtype;
begin
  select q.* into found_queue from broker_private.queues q where q.name = queue_name and q.queue_id >= 65536;
  if found_queue.queue_id is null then
    found := broker_private.refuse(
      208, format('The queue "%s" is not found.', coalesce(queue_name, 'NULL')),
      'Names are taken literally, capitals included; broker.service_queues lists them, broker.create_queue makes one.'
    );
  end if;
  return found_queue;
end
$$;
