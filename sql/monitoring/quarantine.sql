-- broker.quarantine: the quarantined conversations, each with the message that failed: those on
-- queues that the reader may receive from. Ours. messages_waiting counts the failing one and those
-- behind it, as far as they were set aside.
create or replace view broker.quarantine with (security_barrier) as
select
  e.conversation_handle,
  g.conversation_group_id,
  q.name as queue_name,
  coalesce(s.name, s.dropped_name) as service_name,
  e.far_service,
  y.name as message_type_name,
  m.body as message_body,
  m.enqueue_time as message_enqueue_time,
  z.failures,
  z.last_error,
  z.quarantined_at,
  (select count(*) from broker_private.quarantined_messages w where w.endpoint_no = z.endpoint_no) as messages_waiting
from broker_private.quarantine z
join broker_private.endpoints e on e.endpoint_no = z.endpoint_no and e.local_end is null
join broker_private.groups g on g.group_no = e.group_no
join broker_private.visible_queues q on q.queue_id = e.queue_id
join broker_private.services s on s.service_id = e.service_id
join broker_private.quarantined_messages m on m.endpoint_no = z.endpoint_no and m.id = z.message_id
join broker_private.message_types y on y.message_type_id = m.message_type_id;
