-- The messages of every queue that the reader may receive from.
--
-- It has the columns of broker.message after the queue's id. Status 1 is ready. 2 is incomplete: a
-- worker has to validate it first, or what comes before it is not here yet. With RETENTION ON, 0 is
-- received and 3 a copy of what was sent. The view of one queue is a selection of it. A view over a
-- join can't be written through, by nobody. PostgreSQL takes a UNION ALL at the top of a view
-- apart, barrier or not. Then it would run a reader's own conditions on the rows of either part
-- before it asks which queues the reader may see. Hence the query around it. Handle and group tell
-- no messages of an endpoint apart. They are in the window so that a reader's condition on them is
-- looked at before its messages are numbered, not after all are.
create or replace view broker.queue_messages with (security_barrier) as
select
  m.queue_id, m.status, m.priority, m.queuing_order, m.conversation_group_id, m.conversation_handle,
  m.message_sequence_number, m.service_name, m.service_id, m.service_contract_name, m.service_contract_id,
  m.message_type_name, m.message_type_id, m.validation, m.message_body, m.message_id, m.message_enqueue_time
from (
  select
    m.queue_id, m.status, m.priority, m.queuing_order, m.conversation_group_id, m.conversation_handle, m.message_sequence_number,
    m.service_name, m.service_id, m.service_contract_name, m.service_contract_id, m.message_type_name, m.message_type_id,
    m.validation, m.message_body,
    broker_private.message_id(
      m.conversation_id, not m.is_initiator, m.urgency, case m.urgency when 2 then m.message_sequence_number else m.queuing_order end
    ) as message_id,
    m.message_enqueue_time
  from (
    select
      m.queue_id,
      m.status,
      (10 - m.precedence)::smallint as priority,
      m.id as queuing_order,
      g.conversation_group_id,
      e.conversation_handle,
      coalesce(
        m.sequence_number,
        case when m.urgency = 2 then (
          select n.next_number from broker_private.sequence_counters n
          where n.endpoint_no = m.endpoint_no and n.kind = '<next received>'
          order by n.epoch desc
          limit 1
        ) + row_number() over (
            partition by m.queue_id, m.endpoint_no, e.conversation_handle, g.conversation_group_id, m.urgency order by m.status, m.id
          ) - 1
        else (
          select n.next_number from broker_private.sequence_counters n
          where n.endpoint_no = m.endpoint_no and n.kind = '<next received>'
          order by n.epoch desc
          limit 1
        ) + (
          select count(*) from broker_private.messages w
          where w.group_no = m.group_no and w.precedence = m.precedence and w.endpoint_no = m.endpoint_no and w.urgency = 2
        ) + (
          select count(*) from broker_private.incomplete_messages w where w.endpoint_no = m.endpoint_no
        ) end
      ) as message_sequence_number,
      coalesce(s.name, s.dropped_name) as service_name,
      s.service_id,
      coalesce(k.name, k.dropped_name) as service_contract_name,
      k.contract_id as service_contract_id,
      y.name as message_type_name,
      y.message_type_id,
      y.validation::text as validation,
      case when m.shared_body_no is null then m.body else (
        select b.body from broker_private.shared_bodies b where b.shared_body_no = m.shared_body_no
      ) end as message_body,
      e.conversation_id,
      e.is_initiator,
      m.urgency,
      m.enqueue_time as message_enqueue_time
    from (
      select 1::smallint as status, r.queue_id, r.id, r.group_no, r.endpoint_no, r.sequence_number, r.enqueue_time, r.message_type_id,
        r.precedence, r.urgency, r.body, r.shared_body_no
      from broker_private.messages r
      union all
      select 2::smallint, h.queue_id, i.id, h.group_no, i.endpoint_no, i.sequence_number, i.enqueue_time, i.message_type_id,
        (10 - h.priority)::smallint, 2::smallint, i.body, i.shared_body_no
      from broker_private.incomplete_messages i
      join broker_private.endpoints h on h.endpoint_no = i.endpoint_no
      union all
      select 2::smallint, h.queue_id, a.id, h.group_no, a.endpoint_no, a.sequence_number, a.enqueue_time, a.message_type_id,
        (10 - h.priority)::smallint, 2::smallint, a.body, null
      from broker_private.early_messages a
      join broker_private.endpoints h on h.endpoint_no = a.endpoint_no
    ) m
    join broker_private.endpoints e on e.endpoint_no = m.endpoint_no and e.local_end is null
    join broker_private.groups g on g.group_no = e.group_no
    join broker_private.visible_queues q on q.queue_id = m.queue_id
    join broker_private.services s on s.service_id = e.service_id
    join broker_private.contracts k on k.contract_id = e.contract_id
    join broker_private.message_types y on y.message_type_id = m.message_type_id
  ) m
  union all
  select
    r.queue_id, r.status, r.priority, r.id, g.conversation_group_id, e.conversation_handle, r.sequence_number, coalesce(s.name, s.dropped_name),
    s.service_id, coalesce(k.name, k.dropped_name), k.contract_id, y.name, y.message_type_id, y.validation::text,
    case when r.shared_body_no is null then r.body else (
      select b.body from broker_private.shared_bodies b where b.shared_body_no = r.shared_body_no
    ) end,
    r.message_id,
    r.enqueue_time
  from broker_private.retained_messages r
  join broker_private.endpoints e on e.endpoint_no = r.endpoint_no and e.local_end is null
  join broker_private.groups g on g.group_no = e.group_no
  join broker_private.visible_queues q on q.queue_id = r.queue_id
  join broker_private.services s on s.service_id = e.service_id
  join broker_private.contracts k on k.contract_id = e.contract_id
  join broker_private.message_types y on y.message_type_id = r.message_type_id
) m;

comment on view broker.queue_messages is
'The messages of every queue that the reader may receive from; the view of one queue is a selection of it. Ours.';
comment on column broker.queue_messages.queue_id is 'object_id of the queue';
comment on column broker.queue_messages.status is '1 ready; 2 incomplete: a worker must validate it, or what comes before it; with RETENTION ON, 0 received and 3 a copy of what was sent';
comment on column broker.queue_messages.priority is '1 to 10, its conversation''s';
comment on column broker.queue_messages.queuing_order is 'counts up as messages come into the queue';
comment on column broker.queue_messages.conversation_group_id is 'the group that the conversation is in: what RECEIVE locks';
comment on column broker.queue_messages.conversation_handle is 'the handle of this side of the conversation: what SEND, RECEIVE and END CONVERSATION take';
comment on column broker.queue_messages.message_sequence_number is 'its place in the conversation, from 0; each side counts for itself';
comment on column broker.queue_messages.service_name is 'the service that got it';
comment on column broker.queue_messages.service_id is 'as in broker.services';
comment on column broker.queue_messages.service_contract_name is 'of its conversation';
comment on column broker.queue_messages.service_contract_id is 'of its conversation''s contract';
comment on column broker.queue_messages.message_type_name is 'as SEND named it';
comment on column broker.queue_messages.message_type_id is 'as in broker.service_message_types';
comment on column broker.queue_messages.validation is 'N none, E empty, X XML, and ours J JSON';
comment on column broker.queue_messages.message_body is 'bytes as they were sent; text is UTF-8; NULL is no body';
comment on column broker.queue_messages.message_id is 'the same on its whole way';
comment on column broker.queue_messages.message_enqueue_time is 'when it came into this queue; ours';
