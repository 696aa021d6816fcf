-- The contract of that name, or error 8425.
create or replace function broker_private.find_contract(contract_name text)
returns broker_private.contracts
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  found_contract broker_private.contracts%rowtype;
begin
  select c.* into found_contract from broker_private.contracts c where c.name = contract_name;
  if found_contract.contract_id is null then
    found := broker_private.refuse(
      8425, format('The service contract "%s" is not found.', coalesce(contract_name, 'NULL')),
      'Names are compared byte by byte; broker.service_contracts lists them, broker.create_contract makes one.'
    );
  end if;
  return found_contract;
end
$$;
