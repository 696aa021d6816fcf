-- broker_private.visible_queues: the queues that the reader of a view may receive from, as broker_private.is_permitted says.
-- A view, as a function in a view would run with its reader's rights.
create or replace view broker_private.visible_queues with (security_barrier) as
select q.queue_id, q.name
from broker_private.queues q
where q.owner = current_user
  or pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE')
  or exists (
    select from pg_catalog.pg_roles r where r.rolname = q.owner and pg_catalog.pg_has_role(current_user, r.oid, 'USAGE')
  )
  or exists (
    select from broker_private.permissions p
    left join pg_catalog.pg_roles r on r.rolname = p.grantee
    where p.class = 'Q' and p.securable_id = q.queue_id and p.permission = 'RECEIVE'
      and (p.grantee in (current_user, 'public') or pg_catalog.pg_has_role(current_user, r.oid, 'USAGE'))
  );
