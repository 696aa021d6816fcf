-- ALTER AUTHORIZATION: gives an object of the broker another owner.
--
-- Classes: MESSAGE TYPE, CONTRACT, QUEUE, SERVICE, ROUTE, REMOTE SERVICE BINDING, XML SCHEMA
-- COLLECTION.
-- Errors: 153 class or owner, 208, 8423, 8425, 8428 not found, 9663 system object, 229 not the
-- owner, or not a member of the new one.
create or replace function broker.alter_authorization(securable_class text, name text, owner text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_authorization(current_user, securable_class, name, owner);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_authorization(
  caller name, class_name text, securable_name text, new_owner text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  kind constant text := lower(class_name);
  securable record;
  owner_role regrole;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_role_name('owner', new_owner);
  case class_name
    when 'MESSAGE TYPE' then
      select t.message_type_id as id, t.owner into securable from broker_private.find_message_type(securable_name) t;
      perform broker_private.refuse_system_object(kind, securable_name, securable.id);
    when 'CONTRACT' then
      select c.contract_id as id, c.owner into securable from broker_private.find_contract(securable_name) c;
      perform broker_private.refuse_system_object(kind, securable_name, securable.id);
    when 'QUEUE' then
      select q.queue_id as id, q.owner into securable from broker_private.find_queue(securable_name) q;
    when 'SERVICE' then
      select s.service_id as id, s.owner into securable from broker_private.find_service(securable_name) s;
    when 'ROUTE' then
      select r.route_id as id, r.owner into securable from broker_private.find_route(securable_name) r;
    when 'REMOTE SERVICE BINDING' then
      select b.remote_service_binding_id as id, b.owner into securable from broker_private.find_remote_service_binding(securable_name) b;
    when 'XML SCHEMA COLLECTION' then
      select c.schema_collection_id as id, c.owner into securable from broker_private.find_schema_collection(securable_name) c;
    else
      found := broker_private.refuse(
        153, format('"%s" is not a class of objects that have an owner.', coalesce(class_name, 'NULL')),
        'Use MESSAGE TYPE, CONTRACT, QUEUE, SERVICE, ROUTE, REMOTE SERVICE BINDING or XML SCHEMA COLLECTION, in capitals.'
      );
  end case;
  perform broker_private.require_ownership(caller, securable.owner, kind, securable_name);
  owner_role := broker_private.find_role(new_owner::name);
  perform broker_private.require_ownership(caller, owner_role, 'owner', new_owner);
  update broker_private.message_types t set owner = owner_role where class_name = 'MESSAGE TYPE' and t.message_type_id = securable.id;
  update broker_private.contracts c set owner = owner_role where class_name = 'CONTRACT' and c.contract_id = securable.id;
  update broker_private.queues q set owner = owner_role where class_name = 'QUEUE' and q.queue_id = securable.id;
  -- Its procedure runs as the new owner from now on.
  if exists (
    select from broker_private.queues q
    where class_name = 'QUEUE' and q.queue_id = securable.id and q.activation_procedure is not null and q.execute_as is null
  ) then
    perform broker_private.activation_runner(caller, 'OWNER', securable_name);
    perform broker_private.require_execute(securable.id);
  end if;
  update broker_private.services s set owner = owner_role where class_name = 'SERVICE' and s.service_id = securable.id;
  update broker_private.routes r set owner = owner_role where class_name = 'ROUTE' and r.route_id = securable.id;
  update broker_private.remote_service_bindings b set owner = owner_role
  where class_name = 'REMOTE SERVICE BINDING' and b.remote_service_binding_id = securable.id;
  update broker_private.schema_collections c set owner = owner_role
  where class_name = 'XML SCHEMA COLLECTION' and c.schema_collection_id = securable.id;
  return true;
end
$$;

comment on function broker.alter_authorization(text, text, text) is
$$ALTER AUTHORIZATION: gives an object to another owner.

securable_class: MESSAGE TYPE, CONTRACT, QUEUE, SERVICE, ROUTE, REMOTE SERVICE BINDING or XML
  SCHEMA COLLECTION.
name: of the object.
owner: the role that has it from now on.

Rights: the owner of the object, who is a member of the new owner; or the owner of the database. To
  give away a queue that runs its procedure as OWNER, SET on the new owner too.
Errors: 153, 208, 229, 8423, 8425, 8428, 9663, 15151
Example: select broker.alter_authorization('QUEUE', 'warehouse', 'clerk');$$;
