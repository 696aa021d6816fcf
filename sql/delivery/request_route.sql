-- Asks the dynamic routing service for a route, or notes its answer.
create or replace function broker_private.request_route(far_service text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.request_configuration('<route>', far_service);
end
$$;
