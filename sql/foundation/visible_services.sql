-- The services that the reader of a view may know of.
--
-- They are its own, those that it may send to, and those of a queue that it may receive from. Each
-- message there names its service.
create or replace view broker_private.visible_services with (security_barrier) as
select s.service_id
from broker_private.services s
where exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, s.owner, 'USAGE')
  or exists (
    select from broker_private.granted_objects g where g.class = '<service>' and g.securable_id = s.service_id
  )
  or exists (select from broker_private.visible_queues q where q.queue_id = s.queue_id);
