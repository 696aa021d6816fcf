-- broker.dm_broker_activated_tasks: the activated procedures that run, as
-- sys.dm_broker_activated_tasks; spid is the session's process id, as pg_stat_activity.pid.
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
