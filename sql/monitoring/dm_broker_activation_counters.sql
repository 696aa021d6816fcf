-- The counters of SQL Server's Broker Activation object, for each queue that activates.
--
-- Such a queue has an activation procedure. All but tasks_running count up: a rate is the
-- difference of two readings.
create or replace view broker.dm_broker_activation_counters with (security_barrier) as
select
  q.name as queue_name,
  (select count(*) from broker_private.live_tasks t where t.queue_id = m.queue_id and t.has_begun) as tasks_running,
  m.tasks_started,
  m.tasks_aborted,
  m.task_limit_reached,
  m.procedures_invoked as stored_procedures_invoked
from broker_private.queue_monitors m
join broker_private.queues q on q.queue_id = m.queue_id and q.activation_procedure is not null
join broker_private.visible_queues v on v.queue_id = m.queue_id;

comment on view broker.dm_broker_activation_counters is
'SQL Server''s Broker Activation counters of each queue with an activation procedure. All but tasks_running count up: a rate is the difference of two readings. Ours.';
comment on column broker.dm_broker_activation_counters.queue_name is 'the queue that is activated';
comment on column broker.dm_broker_activation_counters.tasks_running is 'readers at work now';
comment on column broker.dm_broker_activation_counters.tasks_started is 'readers that began';
comment on column broker.dm_broker_activation_counters.tasks_aborted is 'readers that ended with an error';
comment on column broker.dm_broker_activation_counters.task_limit_reached is 'how often another reader was wanted beyond max_queue_readers';
comment on column broker.dm_broker_activation_counters.stored_procedures_invoked is 'calls of the procedure';
