-- The route of that name, or error 208.
create or replace function broker_private.find_route(route_name text)
returns broker_private.routes
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.routes%rowtype;
begin
  select r.* into this from broker_private.routes r where r.name = route_name;
  if this.route_id is null then
    found := broker_private.refuse(
      208, format('The route "%s" is not found.', coalesce(route_name, 'NULL')), 'broker.routes lists them, broker.create_route makes one.'
    );
  end if;
  return this;
end
$$;
