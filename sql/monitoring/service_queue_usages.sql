-- broker.service_queue_usages: which queue a service has, as sys.service_queue_usages.
create or replace view broker.service_queue_usages as
select s.service_id, s.queue_id as service_queue_id
from broker_private.services s
where s.name is not null and s.service_id >= 65536;
