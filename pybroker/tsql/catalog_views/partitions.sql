-- sys.partitions: how many rows the tables behind queues and the transmission queue have.
select
  d.queue_name as name, q.object_id, 1 as index_id, 1 as partition_number,
  d.ready + d.retained + d.incomplete as rows
from broker.queue_depths d
join broker.service_queues q on q.name = d.queue_name
union all
select 'sysxmitqueue', 68, 1, 1, (select count(*) from broker.transmission_queue)
