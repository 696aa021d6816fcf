-- The TCP endpoint, or error 208.
create or replace function broker_private.find_endpoint(endpoint_name text)
returns broker_private.tcp_endpoint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.tcp_endpoint%rowtype;
begin
  select t.* into this from broker_private.tcp_endpoint t where t.name = endpoint_name;
  if this.endpoint_id is null then
    found := broker_private.refuse(
      208, format('The endpoint "%s" is not found.', coalesce(endpoint_name, 'NULL')),
      'broker.service_broker_endpoints shows the endpoint; broker.create_endpoint makes it.'
    );
  end if;
  return this;
end
$$;
