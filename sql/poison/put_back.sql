-- Puts the messages of a conversation that has left quarantine back into its queue.
--
-- They are where they were; returns how many. Its count is forgotten at once, even if the caller
-- rolls back: then it is in quarantine still. The caller holds the group.
create or replace function broker_private.put_back(endpoint bigint)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  e broker_private.endpoints%rowtype;
  released bigint;
begin
  select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
  with taken as (
    delete from broker_private.quarantined_messages m
    where m.endpoint_no = e.endpoint_no
    returning m.id, m.sequence_number, m.enqueue_time, m.message_type_id, m.urgency, m.body
  )
  insert into broker_private.messages (
    id, group_no, endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, precedence, urgency, body
  )
  select
    t.id, e.group_no, e.endpoint_no, t.sequence_number, t.enqueue_time, e.queue_id, t.message_type_id, 10 - e.priority, t.urgency, t.body
  from taken t;
  get diagnostics released = row_count;
  perform setval(f.mark, 0) from broker_private.failing_conversations(e.queue_id) f where f.endpoint_no = e.endpoint_no;
  perform broker_private.reset_floors(e.queue_id);
  perform broker_private.note_arrival(e.queue_id);
  return released;
end
$$;
