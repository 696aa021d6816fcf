-- What workers hold to pass it on, as sys.dm_broker_forwarded_messages.
--
-- They are the workers whose home database this is, as of a few seconds ago. time_to_live and
-- time_consumed are seconds; message_fragment_number counts the pieces of a large message from 0.
-- Ours: worker_id. Rows only for the database's owner and members of pg_monitor.
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
    f.conversation_id, f.is_initiator, case f.kind when '<error>' then 1 else 2 end::smallint, f.message_sequence_number
  ) end as message_id,
  f.worker_id
from broker_private.forwarded_messages f
join broker_private.live_workers w on w.worker_id = f.worker_id
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE') or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE');

comment on view broker.dm_broker_forwarded_messages is
'The messages that the workers whose home database this is hold to pass them on, as sys.dm_broker_forwarded_messages, as of a few seconds. Rows only for the database''s owner and members of pg_monitor.';
comment on column broker.dm_broker_forwarded_messages.conversation_id is 'the same on both sides of the conversation';
comment on column broker.dm_broker_forwarded_messages.is_initiator is 'whether the initiator sent it';
comment on column broker.dm_broker_forwarded_messages.to_service_name is 'where it goes';
comment on column broker.dm_broker_forwarded_messages.to_broker_instance is 'guid of the database where it goes; NULL where none was named';
comment on column broker.dm_broker_forwarded_messages.from_service_name is 'who sent it';
comment on column broker.dm_broker_forwarded_messages.from_broker_instance is 'guid of the database that sent it';
comment on column broker.dm_broker_forwarded_messages.adjacent_broker_address is 'the next worker on its way';
comment on column broker.dm_broker_forwarded_messages.message_sequence_number is 'its place in the conversation';
comment on column broker.dm_broker_forwarded_messages.message_fragment_number is 'counts the pieces of a large message from 0';
comment on column broker.dm_broker_forwarded_messages.hops_remaining is 'how many more workers may pass it on';
comment on column broker.dm_broker_forwarded_messages.time_to_live is 'seconds that it may be held altogether';
comment on column broker.dm_broker_forwarded_messages.time_consumed is 'seconds that it has been held';
comment on column broker.dm_broker_forwarded_messages.message_id is 'the same on its whole way';
comment on column broker.dm_broker_forwarded_messages.worker_id is 'the worker that reports this row; ours';
