-- broker_private.route_from_outside(service, broker instance): where a worker whose home this database is takes what comes from outside for a service:
-- LOCAL, tcp://host:port, or null.
create or replace function broker_private.route_from_outside(far_service text, far_instance uuid)
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select r.address from broker_private.route_of(far_service, far_instance, 'WORKER') r);
end
$$;
