-- The priority of a new dialog side: that of the most exact broker priority, or 5.
create or replace function broker_private.priority_for(contract integer, service integer, far_service_name text)
returns smallint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce(
    (
      select p.priority_level from broker_private.priorities p
      where coalesce(p.contract_id = contract, true)
        and coalesce(p.local_service_id = service, true)
        and coalesce(p.remote_service_name = far_service_name, true)
      order by p.contract_id is null, p.local_service_id is null, p.remote_service_name is null
      limit 1
    ),
    5
  );
end
$$;
