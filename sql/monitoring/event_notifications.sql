-- broker.event_notifications: the event notifications on queues, as sys.event_notifications, with
-- the event that sys.events would show.
create or replace view broker.event_notifications with (security_barrier) as
select
  n.name,
  n.event_notification_id as object_id,
  1::smallint as parent_class,
  'OBJECT_OR_COLUMN'::text as parent_class_desc,
  n.queue_id as parent_id,
  n.create_date,
  n.create_date as modify_date,
  false as is_ms_shipped,
  pg_catalog.pg_get_userbyid(n.owner) as principal_id,
  n.service_name,
  n.broker_instance,
  n.event as type_desc
from broker_private.event_notifications n
where exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, n.owner, 'USAGE')
  or exists (
    select from broker_private.queues q
    where q.queue_id = n.queue_id and pg_catalog.pg_has_role(current_user, q.owner, 'USAGE')
  );
