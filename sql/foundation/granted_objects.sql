-- The objects on which the reader of a view has a permission by broker.grant.
create or replace view broker_private.granted_objects with (security_barrier) as
select p.class, p.securable_id
from broker_private.permissions p
where (p.grantee).role = 0 or pg_catalog.pg_has_role(current_user, (p.grantee).role, 'USAGE');
