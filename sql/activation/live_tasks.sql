-- The queue readers whose session lives.
--
-- The session's process is what holds a reader's slot: it does so when the worker that started it
-- is gone, and it ends with it. Its id could be another's by now, but hardly of the same login, in
-- this database, since the same start of the server.
create or replace view broker_private.live_tasks as
select t.task_id, t.queue_id, t.pid, t.has_begun, t.procedure_name, t.execute_as, t.started_at
from broker_private.activated_tasks t
where t.server_start = pg_catalog.pg_postmaster_start_time()
  and exists (
    select from pg_catalog.pg_stat_get_activity(t.pid) a
    join pg_catalog.pg_roles r on r.oid = a.usesysid
    join pg_catalog.pg_database d on d.oid = a.datid
    where r.rolname = t.login and d.datname = pg_catalog.current_database()
  );
