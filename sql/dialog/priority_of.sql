-- The priority that a new endpoint gets, for good.
create or replace function broker_private.priority_of(contract integer, local_service integer, remote_service text)
returns smallint
language sql stable
begin atomic
  select coalesce(
    (
      select p.priority_level
      from broker_private.priorities p
      where coalesce(p.contract_id = contract, true)
        and coalesce(p.local_service_id = local_service, true)
        and coalesce(p.remote_service_name = remote_service, true)
      order by p.contract_id is null, p.local_service_id is null, p.remote_service_name is null
      limit 1
    ),
    5
  )::smallint;
end;
