-- The W3C trace contexts of messages that wait, in a queue or on their way.
--
-- They are those on queues that the reader may receive from. Who looks here takes nothing away.
-- Ours.
-- Plan: contexts by their primary key, for who names a conversation.
create or replace view broker.traceparents with (security_barrier) as
select
  e.conversation_handle,
  e.conversation_id,
  t.queuing_order,
  t.noted_at,
  t.traceparent
from broker_private.endpoints e
join broker_private.visible_queues q on q.queue_id = e.queue_id
join broker_private.traceparents t on t.endpoint_no = e.endpoint_no;

comment on view broker.traceparents is
'The W3C trace contexts of messages that wait, in a queue or on their way: those on queues that the reader may receive from. get_traceparent takes one away, this view only shows them. Ours.';
comment on column broker.traceparents.conversation_handle is 'the handle of the side that has the message in its queue, or on its way';
comment on column broker.traceparents.conversation_id is 'the id that both sides of the conversation have';
comment on column broker.traceparents.queuing_order is 'of the message';
comment on column broker.traceparents.noted_at is 'when the message was sent here, or came from another database';
comment on column broker.traceparents.traceparent is '55 characters, as the W3C has them';
