-- The queues that the reader of a view may receive from, as broker_private.is_permitted says.
--
-- A view, as a function in a view would run with its reader's rights.
create or replace view broker_private.visible_queues with (security_barrier) as
select q.queue_id, q.name
from broker_private.queues q
where pg_catalog.pg_has_role(current_user, q.owner, 'USAGE')
  or pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE')
  or exists (
    select from broker_private.permissions p
    where p.class = '<queue>' and p.securable_id = q.queue_id and p.permission = 'RECEIVE'
      and ((p.grantee).role = 0 or pg_catalog.pg_has_role(current_user, (p.grantee).role, 'USAGE'))
  );
