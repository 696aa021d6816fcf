-- sys.dm_broker_queue_monitors: times are those of the server, as what GETDATE() gives.
select
  m.database_id, m.queue_id, m.state, m.last_empty_rowset_time::timestamp(3) as last_empty_rowset_time,
  m.last_activated_time::timestamp(3) as last_activated_time, m.tasks_waiting
from broker.dm_broker_queue_monitors m
