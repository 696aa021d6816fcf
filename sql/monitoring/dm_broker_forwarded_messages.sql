-- broker.dm_broker_forwarded_messages: the messages that the workers whose home database this is
-- hold to pass them on to another worker, as sys.dm_broker_forwarded_messages, as of a few seconds.
-- time_to_live and time_consumed are seconds; message_fragment_number counts the pieces of a large
-- message from 0. Ours: worker_id. Rows only for the database's owner and members of pg_monitor.
create or replace view broker.dm_broker_forwarded_messages with (security_barrier) as
select
  f.conversation_id,
  f.is_initiator,
  f.to_service_name,
  f.to_broker_instance,
  f.from_service_name,
  f.from_broker_instance,
  f.adjacent_broker_address,
  f.message_sequence_number,
  (f.piece_at / 524288)::integer as message_fragment_number,
  f.hops_remaining,
  (f.time_to_live_ms / 1000)::integer as time_to_live,
  (f.time_consumed_ms / 1000)::integer as time_consumed,
  case when f.message_sequence_number between 0 and 1152921504606846975 then broker_private.message_id(
    f.conversation_id, f.is_initiator, case f.kind when 'X' then 1 else 2 end::smallint, f.message_sequence_number
  ) end as message_id,
  f.worker_id
from broker_private.forwarded_messages f
join broker_private.live_workers w on w.worker_id = f.worker_id
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE') or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE');
