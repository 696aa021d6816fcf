-- What activated procedures put out (9724), and how they ended.
--
-- Only ends that were no good ones are told (28085 to 28088). It has the newest thousand rows of
-- each queue that the reader may receive from. Those of a dropped queue are for the database's
-- owner.
create or replace view broker.activation_log with (security_barrier) as
select
  l.id, l.queue_name, l.procedure_name, l."time", l.spid, l.number, l.severity, l.text, l.sqlstate, l.detail
from broker_private.activation_log l
where exists (select from broker_private.visible_queues v where v.queue_id = l.queue_id)
  or pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE');

comment on view broker.activation_log is
'What activated procedures put out (9724), and how they ended where that was no good end (28085 to 28088): the newest thousand rows of each queue that the reader may receive from. Ours.';
comment on column broker.activation_log.id is 'counts up; the newest row has the highest';
comment on column broker.activation_log.queue_name is 'the queue that started the procedure; NULL where it was dropped since';
comment on column broker.activation_log.procedure_name is 'the procedure, with its schema';
comment on column broker.activation_log.time is 'when it was put out';
comment on column broker.activation_log.spid is 'process id of the session, as in pg_stat_activity';
comment on column broker.activation_log.number is '9724 for output, 28085 to 28088 for an end';
comment on column broker.activation_log.severity is 'PostgreSQL''s level, such as NOTICE or ERROR';
comment on column broker.activation_log.text is 'what was put out, or why it ended';
comment on column broker.activation_log.sqlstate is 'PostgreSQL''s five letters of an error';
comment on column broker.activation_log.detail is 'DETAIL and CONTEXT of an error, as the server gave them';
