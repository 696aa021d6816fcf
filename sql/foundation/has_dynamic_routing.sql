-- Whether this database has the dynamic routing service, or a route to it.
create or replace function broker_private.has_dynamic_routing()
returns boolean
language sql stable
begin atomic
  select
    exists (select from broker_private.services s where s.name = 'SQL/ServiceBroker/BrokerConfiguration')
    or exists (
      select from broker_private.routes r
      where r.remote_service_name = 'SQL/ServiceBroker/BrokerConfiguration' and r.scope = 'DATABASE'
        and (r.expires_at is null or r.expires_at > broker_private.clock())
    );
end;
