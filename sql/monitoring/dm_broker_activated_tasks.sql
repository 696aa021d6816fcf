-- The activated procedures that run, as sys.dm_broker_activated_tasks.
--
-- spid is the session's process id, as pg_stat_activity.pid.
create or replace view broker.dm_broker_activated_tasks with (security_barrier) as
select
  t.pid as spid,
  d.oid as database_id,
  t.queue_id,
  t.procedure_name,
  t.execute_as
from broker_private.live_tasks t
join broker_private.visible_queues v on v.queue_id = t.queue_id
join pg_catalog.pg_database d on d.datname = pg_catalog.current_database()
where t.has_begun;

comment on view broker.dm_broker_activated_tasks is
'The activated procedures that run now, as sys.dm_broker_activated_tasks.';
comment on column broker.dm_broker_activated_tasks.spid is 'process id of the session, as in pg_stat_activity';
comment on column broker.dm_broker_activated_tasks.database_id is 'pg_database''s oid of this database';
comment on column broker.dm_broker_activated_tasks.queue_id is 'the queue that it reads';
comment on column broker.dm_broker_activated_tasks.procedure_name is 'with its schema';
comment on column broker.dm_broker_activated_tasks.execute_as is 'the role that it runs as';
