-- What happened to the conversations that were traced, never what messages contain.
--
-- A role sees its own trace, of queues that it may receive from; the database's owner sees all.
create or replace view broker.trace with (security_barrier) as
select
  v.id, v.event_time, v.event_class, v.event_subclass, v.conversation_handle, v.conversation_id,
  v.is_initiator, v.service_name, v.far_service, v.message_type_name, v.message_sequence_number,
  v.message_size, v.status, v.login_name, v.spid,
  (select r.rolname from pg_catalog.pg_roles r where r.oid = v.role) as traced_by
from broker_private.trace_events v
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE')
  or v.role = pg_catalog.to_regrole(pg_catalog.quote_ident(current_user))
  and exists (select from broker_private.visible_queues q where q.queue_id = v.queue_id);

comment on view broker.trace is
'What happened to the conversations that were traced, in its order, never what messages contain: a role sees its own trace, the database''s owner sees all. After SQL Server''s trace events.';
comment on column broker.trace.id is 'counts up; the newest row has the highest';
comment on column broker.trace.event_time is 'when it happened, within its transaction';
comment on column broker.trace.event_class is 'Service Broker''s event class, such as Broker:Conversation; Broker:Queue is ours';
comment on column broker.trace.event_subclass is 'what happened, such as SEND Message or RECEIVE';
comment on column broker.trace.conversation_handle is 'the side of the conversation that it happened to';
comment on column broker.trace.conversation_id is 'the conversation, the same on both sides';
comment on column broker.trace.is_initiator is 'whether that side began the conversation';
comment on column broker.trace.service_name is 'the service on that side';
comment on column broker.trace.far_service is 'the service on the other side';
comment on column broker.trace.message_type_name is 'of the message, if it is about one';
comment on column broker.trace.message_sequence_number is 'the message''s number on its dialog, where it had one by then';
comment on column broker.trace.message_size is 'bytes of the message''s body';
comment on column broker.trace.status is 'why messages wait, or what the reader noted of its failure';
comment on column broker.trace.login_name is 'the role that logged in to the session that did it';
comment on column broker.trace.spid is 'process id of that session';
comment on column broker.trace.traced_by is 'the role whose trace it is; NULL where it was dropped';
