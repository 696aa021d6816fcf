-- Says why dialogs with ENCRYPTION ON wait whose far service has no remote service binding.
--
-- A dynamic routing service, if there is one, is asked for it.
-- Locks: the request's row; of a conversation that is over, the group.
create or replace function broker_private.hold_unbound(endpoint_nos bigint[])
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  dynamic_routing constant text := 'SQL/ServiceBroker/BrokerConfiguration';
  asks constant boolean := broker_private.has_dynamic_routing();
  far_service text;
begin
  if asks then
    for far_service in
      select distinct e.far_service from broker_private.endpoints e
      where e.endpoint_no = any (endpoint_nos) and e.far_service <> dynamic_routing
      order by e.far_service
    loop
      perform broker_private.request_configuration('<binding>', far_service);
    end loop;
  end if;
  perform broker_private.set_dialog_status(
    e.endpoint_no,
    case
      when asks and q.answered_at is null and q.service_name is not null then format(
        '9770: The remote service binding for service "%s" is asked for at the service "%s".', e.far_service, dynamic_routing
      )
      else format(
        '9727: There is no remote service binding for the service "%s". Create one, or begin the dialog with encryption => false.', e.far_service
      )
    end
  )
  from broker_private.endpoints e
  left join broker_private.configuration_requests q on q.kind = '<binding>' and q.service_name = e.far_service
  where e.endpoint_no = any (endpoint_nos);
end
$$;
