-- broker_private.destination_of(service, broker instance): the number of that destination, which is made when it is new.
create or replace function broker_private.destination_of(far_service text, far_instance uuid)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  number integer;
begin
  loop
    select d.destination_no into number
    from broker_private.destinations d
    where d.service_name = far_service and d.broker_instance is not distinct from far_instance;
    exit when found;
    insert into broker_private.destinations (service_name, broker_instance) values (far_service, far_instance)
    on conflict (service_name, broker_instance) do nothing
    returning destination_no into number;
    exit when found;
  end loop;
  return number;
end
$$;
