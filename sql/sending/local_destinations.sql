-- The destinations that are in this database: those of its services, and that without a name.
--
-- Plan: from the services by destinations_name, so that it takes no longer where others have named
-- thousands of services that are nowhere.
create or replace function broker_private.local_destinations()
returns table (destination_no integer)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  select 0
  union all
  select d.destination_no
  from broker_private.services s
  cross join lateral (
    -- OFFSET 0: only those are asked for their route.
    select x.destination_no, x.service_name, x.broker_instance
    from broker_private.destinations x
    where x.service_name = s.name and exists (
      select from broker_private.transmission_messages t where t.destination_no = x.destination_no
    )
    offset 0
  ) d
  where s.name is not null
    and (select r.address from broker_private.route_of(d.service_name, d.broker_instance) r) = 'LOCAL';
end
$$;
