-- The remote service binding of that name, or error 208.
create or replace function broker_private.find_remote_service_binding(binding_name text)
returns broker_private.remote_service_bindings
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.remote_service_bindings%rowtype;
begin
  select b.* into this from broker_private.remote_service_bindings b where b.name = binding_name;
  if this.remote_service_binding_id is null then
    found := broker_private.refuse(
      208, format('The remote service binding "%s" is not found.', coalesce(binding_name, 'NULL')),
      'broker.remote_service_bindings lists them, broker.create_remote_service_binding makes one.'
    );
  end if;
  return this;
end
$$;
