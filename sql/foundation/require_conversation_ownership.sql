-- Refuses a role that owns neither the conversation nor its service.
--
-- Who began a conversation owns it; of a target, the service's owner. Receiving from a conversation
-- does not make it one's own.
create or replace function broker_private.require_conversation_ownership(role_name name, e broker_private.endpoints, verb text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  service broker_private.services%rowtype;
begin
  select s.* into service from broker_private.services s where s.service_id = e.service_id;
  if not broker_private.is_owner(role_name, e.owner) and not broker_private.is_owner(role_name, service.owner) then
    found := broker_private.refuse(
      229, format('Role "%s" may not %s the conversation "%s".', role_name, verb, e.conversation_handle),
      format(
        'Only its owner, "%s", or the owner of the service "%s" may, and their members: let the program run as such a role, or use '
        'broker.alter_authorization(''SERVICE'', ...).', pg_get_userbyid(e.owner), coalesce(service.name, service.dropped_name)
      )
    );
  end if;
end
$$;
