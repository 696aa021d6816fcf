-- broker_private.route_of(service, broker instance): where the messages for a service go, by the routes of this database.
-- Returns the address, LOCAL or tcp://host:port, or null and the reason as a transmission status.
--
-- Matching stops at the first step that finds a route: the exact service and instance; the service without an instance; the
-- service with any instance, where the dialog names none; any service. Among matches LOCAL comes first if the service is
-- here, then a network address. A route whose lifetime is over is ignored.
create or replace function broker_private.route_of(
  far_service text, far_instance uuid, out address text, out mirror_address text, out problem text
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  step integer;
  is_here boolean := exists (select from broker_private.services s where s.name = far_service)
    and (far_instance is null or far_instance = (select b.service_broker_guid from broker_private.broker_instance b where b.is_the_only_row));
  has_route boolean := false;
begin
  if is_here and far_instance is not null then
    address := 'LOCAL';
    return;
  end if;
  for step in 1..4 loop
    select m.address, m.mirror_address into address, mirror_address
    from (
      select r.address, r.mirror_address, r.route_id
      from broker_private.routes r
      where r.scope = 'DATABASE'
        and (r.expires_at is null or r.expires_at > broker_private.clock())
        and case step
          when 1 then r.remote_service_name = far_service and r.broker_instance = far_instance
          when 2 then r.remote_service_name = far_service and r.broker_instance is null
          when 3 then far_instance is null and r.remote_service_name = far_service and r.broker_instance is not null
          else r.remote_service_name is null and (r.broker_instance is null or r.broker_instance = far_instance)
        end
    ) m
    where m.address like 'tcp://%' or is_here
    order by m.address <> 'LOCAL', m.route_id
    limit 1;
    if found then
      return;
    end if;
    has_route := has_route or exists (
      select from broker_private.routes r
      where r.scope = 'DATABASE' and r.address = 'LOCAL' and r.remote_service_name is not distinct from far_service
    );
  end loop;
  problem := case
    when has_route
    then format('9796: The route for service "%s" is LOCAL, and this database has no such service.', far_service)
    else format(
      '9793: The target service "%s" was not found, and no route names it. Create the service here, or a route to where it is.',
      far_service
    )
  end;
end
$$;
