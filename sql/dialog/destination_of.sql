-- The number of a destination for that pair, which is made when there is none.
--
-- Two sessions that need it first at once make two: each endpoint keeps its own, and nobody waits.
create or replace function broker_private.destination_of(far_service text, far_instance uuid)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  number integer;
begin
  select d.destination_no into number
  from broker_private.destinations d
  where d.service_name = far_service and d.broker_instance is not distinct from far_instance
  limit 1;
  if not found then
    insert into broker_private.destinations (service_name, broker_instance, met_at)
    values (far_service, far_instance, broker_private.clock())
    returning destination_no into number;
  end if;
  return number;
end
$$;
