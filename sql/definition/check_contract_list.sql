-- Refuses a list of a service's contracts that is NULL, or no list of one dimension.
create or replace function broker_private.check_contract_list(service_name text, contract_names text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if contract_names is null or array_ndims(contract_names) > 1 then
    found := broker_private.refuse(
      153, format('The list of contracts of service "%s" is %s.', service_name, coalesce('no list of one dimension: ' || contract_names::text, 'NULL')),
      'Give a list like ''{ordering,returns}'', or leave it out.'
    );
  end if;
end
$$;
