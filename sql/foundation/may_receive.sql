-- Whether the role may send and receive on the queue's conversations; as require_receive, for SEND.
create or replace function broker_private.may_receive(role_name name, queue integer)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  owner_role regrole;
begin
  select q.owner into owner_role from broker_private.queues q where q.queue_id = queue;
  return pg_has_role(role_name, owner_role, 'USAGE')
    or broker_private.is_permitted(role_name, 'RECEIVE', '<queue>', queue, owner_role);
end
$$;
