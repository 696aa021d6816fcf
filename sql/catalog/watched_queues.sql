-- Which event notification is told of which queue.
--
-- One of a queue is told of that queue. One of the database is told of every queue that a user
-- made. Left out is, for QUEUE_ACTIVATION, a queue with internal activation, which excludes that
-- event. So is the queue that the events go to themselves: each would be the reason for the next.
--
-- Of notifications WITH FAN_IN that are equal in owner, event, service and broker instance, the
-- oldest that is told of a queue is told alone.
-- What the planner knows of no table, it takes for ten elements of each array. So unnest would make
-- the view ten times as dear as it is, on a new database dear enough to be compiled.
create or replace view broker_private.watched_queues as
with events (event) as (
  values ('QUEUE_ACTIVATION'), ('BROKER_QUEUE_DISABLED')
), watching as (
  select n.event_notification_id, q.queue_id, e.event, n.owner, n.service_name, n.broker_instance, n.has_fan_in
  from broker_private.event_notifications n
  join events e on e.event = any (n.events)
  join broker_private.queues q on q.queue_id = n.queue_id
  union all
  select n.event_notification_id, q.queue_id, e.event, n.owner, n.service_name, n.broker_instance, n.has_fan_in
  from broker_private.event_notifications n
  join events e on e.event = any (n.events)
  cross join broker_private.queues q
  where n.queue_id is null and q.queue_id >= 65536
    and (
      e.event <> 'QUEUE_ACTIVATION'
      or not q.is_activation_enabled
      and not exists (
        select from broker_private.services s
        where s.name = n.service_name and s.queue_id = q.queue_id
      )
    )
)
select w.event_notification_id, w.queue_id, w.event
from watching w
where not w.has_fan_in or not exists (
  select from watching o
  where o.queue_id = w.queue_id and o.has_fan_in and o.event_notification_id < w.event_notification_id
    and o.event = w.event and o.owner = w.owner and o.service_name = w.service_name
    and o.broker_instance is not distinct from w.broker_instance
);
