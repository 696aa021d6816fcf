-- The routes, as sys.routes.
--
-- lifetime is when the route expires. scope: whether it is for what this database sends (DATABASE),
-- or for what comes from outside to the worker whose home it is (WORKER).
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

comment on view broker.routes is
'The routes, as sys.routes.';
comment on column broker.routes.name is 'as create_route was told';
comment on column broker.routes.route_id is 'the older of two equal ones has the lower';
comment on column broker.routes.principal_id is 'the role that owns it';
comment on column broker.routes.remote_service_name is 'the service that it leads to; NULL is any';
comment on column broker.routes.broker_instance is 'guid of the database that it leads to; NULL is any';
comment on column broker.routes.lifetime is 'when the route expires; NULL is never';
comment on column broker.routes.address is 'LOCAL, TRANSPORT, or tcp://host:port';
comment on column broker.routes.mirror_address is 'of the standby, tried when address doesn''t answer';
comment on column broker.routes.scope is 'DATABASE: for what this database sends; WORKER: for what comes from outside to the worker whose home it is. Ours';
