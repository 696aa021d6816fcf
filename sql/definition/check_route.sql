-- Refuses a route's definition that has no meaning.
create or replace function broker_private.check_route(
  route_name text, route_address text, far_service text, instance text, route_lifetime interval, mirror text, route_scope text
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  address constant text := broker_private.canonical_address(route_address);
begin
  if address is null or address = '' then
    found := broker_private.refuse(
      9659, format('The address of the route "%s" is missing.', route_name), 'Give ''LOCAL'', ''TRANSPORT'' or ''tcp://host:port''.'
    );
  elsif length(address) > 256 then
    found := broker_private.refuse(
      9660, format('The address of the route "%s" has %s characters.', route_name, length(address)), 'It has at most 256.'
    );
  elsif address = 'TRANSPORT' and (far_service is not null or instance is not null) then
    found := broker_private.refuse(
      9745, format('The route "%s" has the address TRANSPORT and names a service or a broker instance.', route_name),
      'Leave service_name and broker_instance out: with TRANSPORT each service''s name says its address, as in tcp://host:port/service.'
    );
  elsif address not in ('LOCAL', 'TRANSPORT') and address !~ '^tcp://' then
    found := broker_private.refuse(
      9744, format('The address "%s" of the route "%s" is none that messages can be sent to.', route_address, route_name),
      'Give ''LOCAL'', ''TRANSPORT'' or ''tcp://host:port'', for example tcp://broker.example.com:4022.'
    );
  elsif address not in ('LOCAL', 'TRANSPORT') and address !~ E'^tcp://(\\[[0-9a-fA-F:.]+\\]|[^\\s:/\\[\\]]+):[0-9]{1,5}$' then
    found := broker_private.refuse(
      9785, format('"%s" is not an address for the route "%s".', route_address, route_name),
      'Give ''LOCAL'', ''TRANSPORT'' or ''tcp://host:port'', for example tcp://broker.example.com:4022.'
    );
  elsif address not in ('LOCAL', 'TRANSPORT') and substring(address from '[0-9]+$')::integer not between 1 and 65535 then
    found := broker_private.refuse(
      9785, format('The port in the address "%s" of the route "%s" is out of range.', route_address, route_name), 'Ports are 1 to 65535.'
    );
  elsif far_service = '' then
    found := broker_private.refuse(
      153, format('The service name of the route "%s" is empty.', route_name), 'Leave service_name out for a route for any service.'
    );
  elsif instance is not null and far_service is null then
    found := broker_private.refuse(
      9662, format('The route "%s" names a broker instance and no service.', route_name), 'Give service_name too.'
    );
  elsif route_lifetime <= interval '0' or route_lifetime > make_interval(secs => 2147483647) then
    found := broker_private.refuse(
      9746, format('The lifetime %s of the route "%s" is out of range.', route_lifetime, route_name),
      'Use more than 0 and at most 2147483647 seconds, or leave it out for a route that does not expire.'
    );
  elsif mirror is not null and (far_service is null or instance is null) then
    found := broker_private.refuse(
      9661, format('The route "%s" has a mirror address, and no service and broker instance.', route_name), 'Give service_name and broker_instance too.'
    );
  elsif mirror is not null and mirror !~* E'^tcp://(\\[[0-9a-f:.]+\\]|[^\\s:/\\[\\]]+):[0-9]{1,5}$' then
    found := broker_private.refuse(
      9743, format('The mirror address "%s" of the route "%s" is no network address.', mirror, route_name), 'Give ''tcp://host:port''.'
    );
  elsif broker_private.canonical_address(mirror) = address then
    found := broker_private.refuse(
      9747, format('The address and the mirror address of the route "%s" are the same.', route_name), 'The mirror is another server.'
    );
  elsif route_scope is null or route_scope not in ('DATABASE', 'WORKER') then
    found := broker_private.refuse(
      153, format('"%s" is not a scope for the route "%s".', coalesce(route_scope, 'NULL'), route_name),
      'Use DATABASE for what is sent from this database, or WORKER for what its worker gets from outside.'
    );
  end if;
  if far_service is not null then
    perform broker_private.check_name('service of the route', far_service);
  end if;
end
$$;
