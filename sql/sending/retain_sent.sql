-- Leaves copies, status 3, of what the endpoint is about to send, if its queue has RETENTION ON.
--
-- The caller holds the group, and has stored nothing of it yet: the first number is worked out from
-- what was sent before.
-- Locks: the endpoint's counter S.
-- Errors: 9618 the queue is off, so that it can't take the copies.
create or replace function broker_private.retain_sent(e broker_private.endpoints, message_type integer, contents bytea[], shared_no bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  queue broker_private.queues%rowtype;
  copies constant bigint := cardinality(contents);
  first_number bigint;
begin
  select q.* into queue from broker_private.queues q where q.queue_id = e.queue_id;
  if not queue.is_retention_enabled or copies = 0 then
    return;
  elsif not queue.is_enqueue_enabled then
    found := broker_private.refuse(
      9618, format('Cannot send on conversation "%s": its queue "%s" is disabled and has retention on.', e.conversation_handle, queue.name),
      format('The queue keeps a copy of what is sent, so enable it: SELECT broker.alter_queue(%L, status => true)', queue.name)
    );
  end if;
  update broker_private.sequence_counters n
  set next_number = n.next_number + copies, epoch = (n.next_number + copies) >> 7
  where n.endpoint_no = e.endpoint_no and n.kind = '<next sent>'
  returning n.next_number - copies into first_number;
  if not found then
    first_number := broker_private.sent_so_far(e);
    insert into broker_private.sequence_counters (endpoint_no, kind, epoch, next_number)
    values (e.endpoint_no, '<next sent>', (first_number + copies) >> 7, first_number + copies);
  end if;
  insert into broker_private.retained_messages (
    id, endpoint_no, queue_id, status, priority, sequence_number, message_id, enqueue_time, message_type_id, body,
    shared_body_no
  )
  select
    nextval('broker_private.queuing_order'), e.endpoint_no, e.queue_id, 3, e.priority, first_number + c.place - 1,
    broker_private.message_id(e.conversation_id, e.is_initiator, 2::smallint, first_number + c.place - 1),
    broker_private.clock(), message_type, case when shared_no is null then nullif(c.content, '') end, shared_no
  from unnest(contents) with ordinality as c (content, place)
  order by c.place;
end
$$;
