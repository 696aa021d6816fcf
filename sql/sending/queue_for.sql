-- The queue on which dialogs to a service lie.
--
-- What the broker answers in its place lies on a queue of the broker's (3). So it is answered also
-- while the service's is off.
create or replace function broker_private.queue_for(service broker_private.services, contract integer)
returns integer
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if contract in (4, 5) and not exists (
    select from broker_private.service_contracts c
    where c.service_id = service.service_id and c.contract_id = contract
  ) then
    return 3;
  end if;
  return service.queue_id;
end
$$;
