-- sys.routes: a lifetime is a datetime in UTC.
select
  r.name, r.route_id, r.principal_id, r.remote_service_name, r.broker_instance,
  (r.lifetime at time zone 'UTC')::timestamp(3) as lifetime, r.address, r.mirror_address, r.scope
from broker.routes r
