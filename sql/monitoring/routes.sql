-- broker.routes: the routes, as sys.routes. lifetime is when the route expires.
create or replace view broker.routes as
select
  r.name,
  r.route_id,
  r.owner as principal_id,
  r.remote_service_name,
  r.broker_instance,
  r.expires_at as lifetime,
  r.address,
  r.mirror_address
from broker_private.routes r;
