-- The messages on their way, as sys.transmission_queue.
--
-- They are those from queues that the reader may receive from.
-- Plan: all but endpoints are joined by their keys, from the left. So the planner leaves out what
-- is not asked for.
create or replace view broker.transmission_queue with (security_barrier) as
select
  e.conversation_handle,
  e.far_service as to_service_name,
  coalesce(e.far_broker_instance, f.far_broker_instance) as to_broker_instance,
  coalesce(s.name, s.dropped_name) as from_service_name,
  coalesce(k.name, k.dropped_name) as service_contract_name,
  t.enqueue_time,
  -- Within this database what went straight came first: what was received and what waits for it.
  (
    select n.next_number from broker_private.sequence_counters n
    where n.endpoint_no = coalesce(l.endpoint_no, t.endpoint_no) and n.kind = case when l.endpoint_no is null then '<next acknowledged>' else '<next received>' end
    order by n.epoch desc
    limit 1
  ) + (
    select count(*) from broker_private.messages m
    where m.group_no = l.group_no and m.precedence = 10 - l.priority and m.endpoint_no = l.endpoint_no and m.urgency = 2
  ) + (
    select count(*) from broker_private.incomplete_messages i where i.endpoint_no = l.endpoint_no and i.sequence_number is null
  ) + row_number() over (partition by e.conversation_handle order by t.id) - 1 as message_sequence_number,
  y.name as message_type_name,
  t.kind = '<error>' as is_conversation_error,
  t.kind = '<end dialog>' as is_end_of_dialog,
  case when t.shared_body_no is null then t.body else (
    select b.body from broker_private.shared_bodies b where b.shared_body_no = t.shared_body_no
  ) end as message_body,
  coalesce(
    (select broker_private.broker_problem()),
    case
      when e.local_end is null and t.kind = '<message>' and coalesce(x.event, n.event) is not null
        then broker_private.held_status(coalesce(x.event, n.event))
    end,
    d.transmission_status, w.status, ''
  ) as transmission_status,
  e.priority
from broker_private.transmission_messages t
join broker_private.endpoints e on e.endpoint_no = t.endpoint_no
join broker_private.visible_queues q on q.queue_id = e.queue_id
left join broker_private.services s on s.service_id = e.service_id
left join broker_private.contracts k on k.contract_id = e.contract_id
left join broker_private.message_types y on y.message_type_id = t.message_type_id
left join broker_private.destinations d on d.destination_no = t.destination_no
left join broker_private.endpoints l on l.conversation_id = e.conversation_id and l.is_initiator = not e.is_initiator
left join broker_private.far_events f on f.endpoint_no = e.endpoint_no and f.event = '<broker known>'
left join broker_private.far_events x on x.endpoint_no = e.endpoint_no and x.event = '<far error>'
left join broker_private.far_events n on n.endpoint_no = e.endpoint_no and n.event = '<far end>'
left join broker_private.transmission_status w on w.endpoint_no = e.endpoint_no;

comment on view broker.transmission_queue is
'The messages on their way, as sys.transmission_queue: those from queues that the reader may receive from.';
comment on column broker.transmission_queue.conversation_handle is 'the handle of this side of the conversation: what SEND, RECEIVE and END CONVERSATION take';
comment on column broker.transmission_queue.to_service_name is 'where it goes';
comment on column broker.transmission_queue.to_broker_instance is 'guid of the database where it goes; NULL where none was named';
comment on column broker.transmission_queue.from_service_name is 'the service that sent it';
comment on column broker.transmission_queue.service_contract_name is 'of its conversation';
comment on column broker.transmission_queue.enqueue_time is 'when it was sent';
comment on column broker.transmission_queue.message_sequence_number is 'its place in the conversation, from 0';
comment on column broker.transmission_queue.message_type_name is 'as SEND named it';
comment on column broker.transmission_queue.is_conversation_error is 'whether it is an Error message';
comment on column broker.transmission_queue.is_end_of_dialog is 'whether it is an EndDialog';
comment on column broker.transmission_queue.message_body is 'as it was sent';
comment on column broker.transmission_queue.transmission_status is 'why it waits; empty if nothing is known to be wrong';
comment on column broker.transmission_queue.priority is '1 to 10, its conversation''s';
