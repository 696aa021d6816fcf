-- sys.service_queues: queues, with the columns of SQL Server alone.
select
  q.name, q.object_id, q.principal_id,
  (select n.oid::bigint from pg_catalog.pg_namespace n where n.nspname = q.schema_id) as schema_id,
  q.parent_object_id, 'SQ' as type, 'SERVICE_QUEUE' as type_desc,
  q.create_date::timestamp(3) as create_date, q.modify_date::timestamp(3) as modify_date,
  q.is_ms_shipped, q.is_published, q.is_schema_published, q.max_readers,
  q.activation_procedure, q.execute_as_principal_id, q.is_activation_enabled, q.is_receive_enabled,
  q.is_enqueue_enabled, q.is_retention_enabled, q.is_poison_message_handling_enabled
from broker.service_queues q
