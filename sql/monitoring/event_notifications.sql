-- The event notifications of queues and of the database, as sys.event_notifications.
--
-- One of several events has a row for each, as a join with sys.events gives.
create or replace view broker.event_notifications with (security_barrier) as
select
  n.name,
  n.event_notification_id as object_id,
  case when n.queue_id is null then 0 else 1 end::smallint as parent_class,
  case when n.queue_id is null then 'DATABASE' else 'OBJECT_OR_COLUMN' end::text as parent_class_desc,
  coalesce(n.queue_id, 0) as parent_id,
  n.create_date,
  n.create_date as modify_date,
  false as is_ms_shipped,
  pg_catalog.pg_get_userbyid(n.owner) as principal_id,
  n.service_name,
  n.broker_instance,
  e.event as type_desc,
  n.has_fan_in as is_fan_in
from broker_private.event_notifications n
cross join unnest(n.events) e (event)
where exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, n.owner, 'USAGE')
  or exists (
    select from broker_private.queues q
    where q.queue_id = n.queue_id and pg_catalog.pg_has_role(current_user, q.owner, 'USAGE')
  );

comment on view broker.event_notifications is
'The event notifications of queues and of the database, as sys.event_notifications joined with sys.events: a row for each event of each.';
comment on column broker.event_notifications.name is 'as create_event_notification was told';
comment on column broker.event_notifications.object_id is 'what other views refer to it by';
comment on column broker.event_notifications.parent_class is '0 for all queues of the database, 1 for one';
comment on column broker.event_notifications.parent_class_desc is 'DATABASE or OBJECT_OR_COLUMN';
comment on column broker.event_notifications.parent_id is 'object_id of the queue; 0 for all';
comment on column broker.event_notifications.create_date is 'when it was created';
comment on column broker.event_notifications.modify_date is 'when its definition last changed';
comment on column broker.event_notifications.is_ms_shipped is 'whether the broker itself made it';
comment on column broker.event_notifications.principal_id is 'the role that owns it';
comment on column broker.event_notifications.service_name is 'who is told';
comment on column broker.event_notifications.broker_instance is 'guid of the database where that service is; NULL where none was named';
comment on column broker.event_notifications.type_desc is 'QUEUE_ACTIVATION or BROKER_QUEUE_DISABLED';
comment on column broker.event_notifications.is_fan_in is 'whether equal notifications are told of an event once, together';
