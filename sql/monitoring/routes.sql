-- broker.routes: the routes, as sys.routes. lifetime is when the route expires. scope: whether it
-- is for what this database sends (DATABASE), or for what comes from outside to the worker whose
-- home it is (WORKER).
create or replace view broker.routes with (security_barrier) as
select
  r.name,
  r.route_id,
  pg_catalog.pg_get_userbyid(r.owner) as principal_id,
  r.remote_service_name,
  r.broker_instance,
  r.expires_at as lifetime,
  r.address,
  r.mirror_address,
  r.scope
from broker_private.routes r
where exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, r.owner, 'USAGE');
