-- Replaces the messages that a worker holds to pass them on.
--
-- They are an array of objects with the names of the columns of broker_private.forwarded_messages.
-- After note_worker, in its transaction.
-- Locks: the worker's rows, which note_worker holds already.
create or replace function broker_private.note_forwarded_messages(worker uuid, messages jsonb)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from broker_private.forwarded_messages f where f.worker_id = note_forwarded_messages.worker;
  insert into broker_private.forwarded_messages (
    worker_id, conversation_id, is_initiator, to_service_name, to_broker_instance, from_service_name, from_broker_instance,
    adjacent_broker_address, kind, message_sequence_number, piece_at, hops_remaining, time_to_live_ms, time_consumed_ms
  )
  select
    note_forwarded_messages.worker, f.conversation_id, f.is_initiator, f.to_service_name, f.to_broker_instance, f.from_service_name,
    f.from_broker_instance, f.adjacent_broker_address, f.kind, f.message_sequence_number, f.piece_at, f.hops_remaining, f.time_to_live_ms,
    f.time_consumed_ms
  from jsonb_to_recordset(note_forwarded_messages.messages) as f (
    conversation_id uuid, is_initiator boolean, to_service_name text, to_broker_instance uuid, from_service_name text, from_broker_instance uuid,
    adjacent_broker_address text, kind "char", message_sequence_number bigint, piece_at bigint, hops_remaining smallint, time_to_live_ms bigint,
    time_consumed_ms bigint
  );
end
$$;
