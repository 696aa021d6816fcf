-- Where the messages for a service go, by the routes.
--
-- Routes are of this database (DATABASE), or of the worker whose home it is (WORKER). WORKER is for
-- what comes from outside; LOCAL is said there whichever of its databases has the service. Returns
-- address, LOCAL or tcp://host:port, and the mirror's; or null and the reason as a transmission
-- status. is_local: a route says LOCAL, or, without one, the dialog names its broker. Then a
-- database of the same worker that has the service comes before the address. broker_instances: the
-- brokers that a dialog which names none may be given to, one of them for good; the address is that
-- of the first.
--
-- is_exact: a route names service and broker instance, the first step. is_missing: the dynamic
-- routing service is to be asked (request_route), or its answer to be noted.
--
-- Matching stops at the first step that finds a route, also if nothing can be sent by it. First the
-- exact service and instance; then the service without an instance; then the service with any
-- instance, where the dialog names none. Then a route that the dynamic routing service is asked
-- for, if this database reaches one and has no such service itself. Last any service. Among matches
-- one with a mirror comes first, then LOCAL if the service is here, then a network address.
-- TRANSPORT is last: there the service's name says the address. A route whose lifetime is over is
-- ignored.
create or replace function broker_private.route_of(
  far_service text, far_instance uuid, route_scope text default 'DATABASE', out address text, out mirror_address text,
  out is_local boolean, out broker_instances uuid[], out is_missing boolean, out problem text, out is_exact boolean
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  matching record;
  step integer;
  named_local boolean;
  has_service boolean;
  own_guid uuid;
  request broker_private.configuration_requests%rowtype;
  dynamic_routing constant text := 'SQL/ServiceBroker/BrokerConfiguration';
begin
  is_missing := false;
  select
    exists (select from broker_private.services s where s.name = far_service), b.service_broker_guid,
    (
      select bool_and(r.address = 'LOCAL' and r.mirror_address is null and r.broker_instance is null and r.expires_at is null)
      from broker_private.routes r
      where r.scope = route_scope and (r.remote_service_name is null or r.remote_service_name = far_service)
    )
  into has_service, own_guid, is_local
  from broker_private.broker_instance b
  where b.is_the_only_row;
  -- Where nothing leads away no step needs to be looked for.
  if is_local and has_service and route_scope = 'DATABASE' and (far_instance is null or far_instance = own_guid) then
    is_exact := false;
    address := 'LOCAL';
    return;
  end if;
  is_local := null;
  for matching in
    select
      r.broker_instance, r.mirror_address, r.remote_service_name is not null as is_named,
      case r.address
        when 'TRANSPORT' then 'tcp://' || substring(far_service from E'^(?:[tT][cC][pP])://((?:\\[[0-9a-fA-F:.]+\\]|[^\\s:/\\[\\]]+):[0-9]{1,5})(?:/|$)')
        else r.address
      end as address,
      x.step
    from broker_private.routes r
    cross join lateral (
      select case
        when r.remote_service_name is null then 5
        when r.broker_instance is null then 2
        when r.broker_instance = far_instance then 1
        else 3
      end as step
    ) x
    where r.scope = route_scope
      and (r.expires_at is null or r.expires_at > broker_private.clock())
      and (
        r.remote_service_name is null
        or r.remote_service_name = far_service and (r.broker_instance is null or far_instance is null or r.broker_instance = far_instance)
      )
    order by x.step, case when x.step = 3 then r.broker_instance::text end, r.mirror_address is null, r.address = 'TRANSPORT', r.route_id
  loop
    step := coalesce(step, matching.step);
    exit when matching.step > step;
    if step = 3 then
      broker_instances := case
        when matching.broker_instance = any (broker_instances) then broker_instances else broker_instances || matching.broker_instance
      end;
      continue when matching.broker_instance <> broker_instances[1];
    end if;
    if matching.address = 'LOCAL' then
      is_local := true;
      named_local := matching.is_named;
    elsif address is null and matching.address is not null then
      address := matching.address;
      mirror_address := matching.mirror_address;
    end if;
  end loop;
  is_exact := coalesce(step = 1, false);
  if (step is null or step = 5) and route_scope = 'DATABASE' and not has_service and far_service <> dynamic_routing
    and broker_private.has_dynamic_routing()
  then
    select q.* into request from broker_private.configuration_requests q where q.kind = '<route>' and q.service_name = far_service;
    if request.service_name is null or request.answered_at is null or request.answered_at <= broker_private.clock() - interval '10 min' then
      is_local := false;
      is_missing := request.service_name is null or request.answered_at is not null or broker_private.is_request_over(request);
      address := null;
      mirror_address := null;
      problem := format('9770: The route for service "%s" is asked for at the service "%s".', far_service, dynamic_routing);
      return;
    end if;
  end if;

  is_local := coalesce(is_local, step is null and far_instance is not null);
  if is_local and mirror_address is null then
    if route_scope = 'WORKER' then
      address := 'LOCAL';
      return;
    end if;
    if has_service and (far_instance is null or far_instance = own_guid) then
      address := 'LOCAL';
      return;
    end if;
  end if;
  if address is not null then
    return;
  end if;
  problem := case
    when named_local then format('9796: The route for service "%s" is LOCAL, and this database has no such service.', far_service)
    when is_local then format(
      '9793: The target service "%s" was not found, and no route names it. Create the service here, or a route to where it is.', far_service
    )
    when step is not null then format(
      '9750: The route for service "%s" is TRANSPORT, and the name has no address: it should begin with tcp://host:port/.', far_service
    )
    else format(
      '9750: No route matches the service "%s". Create one to where it is: the message waits for it.', far_service
    )
  end;
end
$$;
