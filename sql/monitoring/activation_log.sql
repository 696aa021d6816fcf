-- broker.activation_log: what activated procedures put out (9724) and how they ended where that was
-- no good end (28085 to 28088), the newest thousand rows of each queue that the reader may receive
-- from. Those of a dropped queue are for the database's owner.
create or replace view broker.activation_log with (security_barrier) as
select
  l.id, l.queue_name, l.procedure_name, l."time", l.spid, l.number, l.severity, l.text, l.sqlstate, l.detail
from broker_private.activation_log l
where exists (select from broker_private.visible_queues v where v.queue_id = l.queue_id)
  or pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE');
