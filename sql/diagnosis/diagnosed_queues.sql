-- The queues that a diagnosis may tell the role of, by their numbers.
--
-- A role that sees all is told of all, any other of those that it may receive from. With an
-- endpoint, the queues that messages of its conversation lie in or wait for; both sides' while
-- there is no message.
create or replace function broker_private.diagnosed_queues(reader name, endpoint bigint)
returns setof integer
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  is_all constant boolean := broker_private.sees_all(reader);
  concerned integer[];
begin
  if endpoint is not null then
    with sides as materialized (
      select x.queue_id, x.endpoint_no, exists (
        select from broker_private.messages m where m.group_no = x.group_no and m.endpoint_no = x.endpoint_no
      ) as has_messages, exists (
        select from broker_private.transmission_messages t where t.endpoint_no = x.endpoint_no
      ) as sends
      from broker_private.endpoints e
      join broker_private.endpoints x on x.conversation_id = e.conversation_id
      where e.endpoint_no = endpoint
      union all
      select s.queue_id, null, false, false
      from broker_private.endpoints e
      join broker_private.services s on s.name = e.far_service
      where e.endpoint_no = endpoint
    )
    select coalesce(
      array_agg(s.queue_id) filter (
        where s.has_messages
          or exists (select from sides o where o.sends and o.endpoint_no is distinct from s.endpoint_no)
      ),
      array_agg(s.queue_id)
    )
    into concerned
    from sides s;
  end if;
  return query
  select q.queue_id
  from broker_private.queues q
  where q.queue_id >= 65536
    and (is_all or broker_private.is_permitted(reader, 'RECEIVE', '<queue>', q.queue_id, q.owner))
    and (endpoint is null or q.queue_id = any (concerned))
  order by q.queue_id;
end
$$;
