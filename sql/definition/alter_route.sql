-- ALTER ROUTE; what is not given (NULL) stays, so a clause can't be unset.
--
-- A new lifetime begins now. Who owns a route may send its service elsewhere; to take another
-- service with it needs what create_route needs.
-- Errors: 208 not found, and those of create_route.
create or replace function broker.alter_route(
  name text,
  address text default null,
  service_name text default null,
  broker_instance text default null,
  lifetime interval default null,
  mirror_address text default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_route(current_user, name, address, service_name, broker_instance, lifetime, mirror_address);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_route(
  caller name, route_name text, route_address text, far_service text, instance text, route_lifetime interval, mirror text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.routes%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_route(route_name);
  perform broker_private.require_ownership(caller, this.owner, 'route', this.name);
  route_address := coalesce(route_address, this.address);
  if far_service is distinct from this.remote_service_name and far_service is not null then
    perform broker_private.require_creation(caller, 'route', null);
  end if;
  far_service := coalesce(far_service, this.remote_service_name);
  instance := coalesce(instance, this.broker_instance::text);
  perform broker_private.check_route(route_name, route_address, far_service, instance, route_lifetime, mirror, this.scope);
  update broker_private.routes r set
    address = broker_private.canonical_address(route_address),
    remote_service_name = far_service,
    broker_instance = broker_private.parse_broker_instance(instance),
    expires_at = coalesce(broker_private.clock() + route_lifetime, r.expires_at)
  where r.route_id = this.route_id;
  return true;
end
$$;

comment on function broker.alter_route(text, text, text, text, interval, text) is
$$ALTER ROUTE: changes where a route leads. A clause can't be unset: drop the route, and create it
anew.

name: of the route.
address, service_name, broker_instance, lifetime, mirror_address: as broker.create_route. NULL
  leaves one as it is; a new lifetime begins now.

Rights: the owner of the route, or of the database; to take another service with it, those of
  broker.create_route.
Errors: 103, 153, 208, 229, 9659, 9660, 9661, 9662, 9743, 9744, 9745, 9746, 9747, 9785
Example: select broker.create_route('far', 'tcp://far.example:4022', '//far/warehouse'), broker.alter_route('far', address => 'tcp://far.example:4023');$$;
