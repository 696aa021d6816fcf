-- The quarantined conversations, each with the message that failed.
--
-- They are those on queues that the reader may receive from. Ours. messages_waiting counts the
-- failing one and those behind it, as far as they were set aside.
-- Plan: nothing, while nothing is set aside. Without statistics the join begins with each endpoint
-- of the queues, and each scrape looks here.
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
  (select count(*) from broker_private.quarantined_messages w where w.endpoint_no = z.endpoint_no) as messages_waiting,
  z.retry_at,
  z.retries
from broker_private.quarantine z
join broker_private.endpoints e on e.endpoint_no = z.endpoint_no and e.local_end is null
join broker_private.groups g on g.group_no = e.group_no
join broker_private.visible_queues q on q.queue_id = e.queue_id
join broker_private.services s on s.service_id = e.service_id
join broker_private.quarantined_messages m on m.endpoint_no = z.endpoint_no and m.id = z.message_id
join broker_private.message_types y on y.message_type_id = m.message_type_id
where (select true from broker_private.quarantine x limit 1);

comment on view broker.quarantine is
'The quarantined conversations, each with the message that failed: those on queues that the reader may receive from. Ours.';
comment on column broker.quarantine.conversation_handle is 'the handle of this side of the conversation: what SEND, RECEIVE and END CONVERSATION take';
comment on column broker.quarantine.conversation_group_id is 'the group that the conversation is in: what RECEIVE locks';
comment on column broker.quarantine.queue_name is 'the queue that the conversation was set aside from';
comment on column broker.quarantine.service_name is 'the service on this side';
comment on column broker.quarantine.far_service is 'the service on the other side';
comment on column broker.quarantine.message_type_name is 'of the message that failed';
comment on column broker.quarantine.message_body is 'of the message that failed';
comment on column broker.quarantine.message_enqueue_time is 'when the message that failed came into the queue';
comment on column broker.quarantine.failures is 'how many times in a row it failed';
comment on column broker.quarantine.last_error is 'what note_failure was told last; NULL where only rollbacks were seen';
comment on column broker.quarantine.quarantined_at is 'when it was set aside';
comment on column broker.quarantine.messages_waiting is 'the failing one and those behind it, as far as they were set aside';
comment on column broker.quarantine.retry_at is 'when it goes on by itself; NULL where it waits for redrive or discard';
comment on column broker.quarantine.retries is 'how many times it was or will be tried again so, since its last success';
