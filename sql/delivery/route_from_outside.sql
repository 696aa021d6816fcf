-- Where a worker takes what comes from outside for a service.
--
-- Its home is this database. LOCAL, or tcp://host:port and the mirror's address if there is one; or
-- null.
create or replace function broker_private.route_from_outside(far_service text, far_instance uuid, out address text, out mirror_address text)
returns record
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select r.address, r.mirror_address into address, mirror_address from broker_private.route_of(far_service, far_instance, 'WORKER') r;
end
$$;
