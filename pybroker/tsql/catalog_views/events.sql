-- sys.events: those of event notifications. Numbers of events are left out: nothing here has them.
select
  n.object_id, n.type_desc, false as is_trigger_event, null::integer as event_group_type,
  null::text as event_group_type_desc
from broker.event_notifications n
