-- broker.service_queues: the queues and their options, as sys.service_queues. A queue that
-- rollbacks turned off is shown as off from the fifth on. execute_as_principal_id is a role's name;
-- NULL is the owner. poison_action, scaling and watchdog are ours.
create or replace view broker.service_queues with (security_barrier) as
select
  q.name,
  q.queue_id as object_id,
  pg_catalog.pg_get_userbyid(q.owner) as principal_id,
  q.view_schema as schema_id,
  0 as parent_object_id,
  'SQ'::text as type,
  'SERVICE_QUEUE'::text as type_desc,
  q.create_date,
  q.modify_date,
  false as is_ms_shipped,
  false as is_published,
  false as is_schema_published,
  q.max_readers,
  q.activation_procedure,
  pg_catalog.pg_get_userbyid(q.execute_as) as execute_as_principal_id,
  q.is_activation_enabled,
  q.is_receive_enabled and not broker_private.is_poisoned(q.queue_id) as is_receive_enabled,
  q.is_enqueue_enabled and not broker_private.is_poisoned(q.queue_id) as is_enqueue_enabled,
  q.is_retention_enabled,
  q.is_poison_message_handling_enabled,
  q.poison_action,
  q.scaling,
  q.watchdog
from broker_private.queues q
where q.queue_id >= 65536
  and (
    exists (select from broker_private.all_seeing)
    or exists (select from broker_private.visible_queues v where v.queue_id = q.queue_id)
  );
