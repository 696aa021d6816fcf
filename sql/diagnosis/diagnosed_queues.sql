-- The queues that a diagnosis may tell the role of, by their numbers.
--
-- A role that sees all is told of all, any other of those that it may receive from. With an
-- endpoint, the queues of its two sides only.
create or replace function broker_private.diagnosed_queues(reader name, endpoint bigint)
returns setof integer
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  is_all constant boolean := broker_private.sees_all(reader);
begin
  return query
  select q.queue_id
  from broker_private.queues q
  where q.queue_id >= 65536
    and (is_all or broker_private.is_permitted(reader, 'RECEIVE', '<queue>', q.queue_id, q.owner))
    and (endpoint is null or q.queue_id in (
      select e.queue_id from broker_private.endpoints e where e.endpoint_no = endpoint
      union all
      select f.queue_id from broker_private.endpoints e
      join broker_private.endpoints f
        on f.conversation_id = e.conversation_id and f.is_initiator <> e.is_initiator
      where e.endpoint_no = endpoint
      union all
      select s.queue_id from broker_private.endpoints e
      join broker_private.services s on s.name = e.far_service
      where e.endpoint_no = endpoint
    ))
  order by q.queue_id;
end
$$;
