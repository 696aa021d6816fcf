-- Keeps what RECEIVE took from a queue with RETENTION ON.
--
-- It stays as status 0 until the conversation's side here ends. The caller holds the group.
create or replace function broker_private.retain_received(received broker.message[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  insert into broker_private.retained_messages (
    id, endpoint_no, queue_id, status, priority, sequence_number, message_id, enqueue_time, message_type_id, body
  )
  select
    r.queuing_order, e.endpoint_no, e.queue_id, 0, r.priority, r.message_sequence_number, r.message_id, r.message_enqueue_time,
    r.message_type_id, r.message_body
  from unnest(received) r
  join broker_private.endpoints e on e.conversation_handle = r.conversation_handle;
end
$$;
