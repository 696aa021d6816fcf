-- The service of that name, or error 8423.
--
-- The broker's own service is nobody's to use.
create or replace function broker_private.find_service(service_name text)
returns broker_private.services
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  found_service broker_private.services%rowtype;
begin
  select s.* into found_service from broker_private.services s where s.name = service_name and s.service_id >= 65536;
  if found_service.service_id is null then
    found := broker_private.refuse(
      8423, format('The service "%s" is not found.', coalesce(service_name, 'NULL')),
      'Names are compared byte by byte; broker.services lists them, broker.create_service makes one.'
    );
  end if;
  return found_service;
end
$$;
