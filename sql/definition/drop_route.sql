-- DROP ROUTE, also while messages go by it: they wait for another.
-- Errors: 208 not found, 229.
create or replace function broker.drop_route(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_route(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_route(caller name, route_name text)
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
  delete from broker_private.routes r where r.route_id = this.route_id;
  return true;
end
$$;

comment on function broker.drop_route(text) is
$$DROP ROUTE. Messages that went by it wait for another.

name: as it was created.

Rights: the owner of the route, or of the database.
Errors: 208, 229
Example: select broker.create_route('far', 'LOCAL', '//far/warehouse'), broker.drop_route('far');$$;
