-- broker.services: the services, as sys.services.
create or replace view broker.services with (security_barrier) as
select s.name, s.service_id, pg_catalog.pg_get_userbyid(s.owner) as principal_id, s.queue_id as service_queue_id
from broker_private.services s
where s.name is not null and s.service_id >= 65536
  and exists (select from broker_private.visible_services v where v.service_id = s.service_id);
