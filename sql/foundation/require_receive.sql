-- Refuses a role without RECEIVE on the queue.
create or replace function broker_private.require_receive(role_name name, queue integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.queues%rowtype;
begin
  select q.* into this from broker_private.queues q where q.queue_id = queue;
  if not broker_private.is_permitted(role_name, 'RECEIVE', '<queue>', queue, this.owner) then
    found := broker_private.refuse(
      229, format('Role "%s" has no RECEIVE permission on the queue "%s".', role_name, this.name),
      format('Let its owner, "%s", run: SELECT broker.grant(''RECEIVE'', ''QUEUE'', %L, %L)', pg_get_userbyid(this.owner), this.name, role_name)
    );
  end if;
end
$$;
