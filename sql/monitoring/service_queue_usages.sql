-- Which queue a service has, as sys.service_queue_usages.
create or replace view broker.service_queue_usages with (security_barrier) as
select s.service_id, s.queue_id as service_queue_id
from broker_private.services s
where s.name is not null and s.service_id >= 65536
  and exists (select from broker_private.visible_services v where v.service_id = s.service_id);

comment on view broker.service_queue_usages is
'Which queue a service has, as sys.service_queue_usages.';
comment on column broker.service_queue_usages.service_id is 'the service that is addressed';
comment on column broker.service_queue_usages.service_queue_id is 'object_id of the queue that its messages go to';
