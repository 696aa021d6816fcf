-- The queues and their options, as sys.service_queues.
--
-- A queue that rollbacks turned off is shown as off from the fifth on. execute_as_principal_id is a
-- role's name; NULL is the owner. poison_action, scaling and watchdog are ours.
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

comment on view broker.service_queues is
'The queues and their options, as sys.service_queues. A queue that rollbacks turned off is shown as off from the fifth on.';
comment on column broker.service_queues.name is 'as create_queue was told';
comment on column broker.service_queues.object_id is 'what service_queue_id and queue_id elsewhere refer to';
comment on column broker.service_queues.principal_id is 'the role that owns it';
comment on column broker.service_queues.schema_id is 'the schema of the queue''s view';
comment on column broker.service_queues.parent_object_id is 'always 0';
comment on column broker.service_queues.type is 'always SQ';
comment on column broker.service_queues.type_desc is 'always SERVICE_QUEUE';
comment on column broker.service_queues.create_date is 'when it was created';
comment on column broker.service_queues.modify_date is 'when its definition last changed';
comment on column broker.service_queues.is_ms_shipped is 'whether the broker itself made it';
comment on column broker.service_queues.is_published is 'always false';
comment on column broker.service_queues.is_schema_published is 'always false';
comment on column broker.service_queues.max_readers is 'readers that activation runs at the same time at most';
comment on column broker.service_queues.activation_procedure is 'with its schema; NULL without';
comment on column broker.service_queues.execute_as_principal_id is 'the role that the procedure runs as; NULL is the owner';
comment on column broker.service_queues.is_activation_enabled is 'whether a worker starts the procedure';
comment on column broker.service_queues.is_receive_enabled is 'whether RECEIVE is possible';
comment on column broker.service_queues.is_enqueue_enabled is 'whether messages arrive';
comment on column broker.service_queues.is_retention_enabled is 'whether messages are kept until their conversation ends';
comment on column broker.service_queues.is_poison_message_handling_enabled is 'whether five rollbacks in a row have a consequence';
comment on column broker.service_queues.poison_action is 'that consequence: DISABLE_QUEUE or QUARANTINE. Ours';
comment on column broker.service_queues.scaling is 'SERVICE_BROKER: one more reader at a time; BACKLOG: by what waits. Ours';
comment on column broker.service_queues.watchdog is 'after how long a reader that never receives is given up; ours';
