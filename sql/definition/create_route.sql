-- CREATE ROUTE: where messages for a service go: LOCAL, or tcp://host:port of a worker's endpoint.
-- Errors: 2714 exists, 9659 to 9662, 9743 to 9747, 9785 the definition, 103, 153, 229.
create or replace function broker.create_route(
  name text,
  address text,
  service_name text default null,
  broker_instance text default null,
  lifetime interval default null,
  mirror_address text default null,
  owner text default null,
  scope text default 'DATABASE'
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_route(
      current_user, name, address, service_name, broker_instance, lifetime, mirror_address, owner, scope
    );
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_route(
  caller name, route_name text, route_address text, far_service text, instance text, route_lifetime interval, mirror text,
  route_owner text, route_scope text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  owner_role regrole;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('route', route_name);
  owner_role := broker_private.require_creation(caller, 'route', route_owner);
  perform broker_private.check_route(route_name, route_address, far_service, instance, route_lifetime, mirror, route_scope);
  insert into broker_private.routes (
    name, owner, remote_service_name, broker_instance, expires_at, address, mirror_address, scope
  )
  values (
    route_name, owner_role, far_service, broker_private.parse_broker_instance(instance), broker_private.clock() + route_lifetime,
    broker_private.canonical_address(route_address), broker_private.canonical_address(mirror), route_scope
  )
  on conflict (name) do nothing;
  if not found then
    found := broker_private.refuse_duplicate('route', route_name);
  end if;
  return true;
end
$$;

comment on function broker.create_route(text, text, text, text, interval, text, text, text) is
$$CREATE ROUTE: where messages for a service go.

name: of the route.
address: LOCAL, TRANSPORT: the service's name is its address, or tcp://host:port of a worker's
  endpoint.
service_name: the service that it leads to; NULL is any that has no route of its own.
broker_instance: guid of the database that it leads to; NULL is any.
lifetime: after it the route is ignored; NULL is never.
mirror_address: of the standby, tried when address doesn't answer; needs broker_instance.
owner: a role; NULL is the caller.
scope: DATABASE: for what this database sends; WORKER: for what comes from outside to the worker
  whose home it is. Ours: SQL Server has msdb.

Rights: CREATE on the database; to name another owner, membership in that role.
Errors: 103, 153, 229, 2714, 9659, 9660, 9661, 9662, 9743, 9744, 9745, 9746, 9747, 9785
Example: select broker.create_route('far', 'tcp://far.example:4022', '//far/warehouse');$$;
