-- The services, as sys.services.
create or replace view broker.services with (security_barrier) as
select s.name, s.service_id, pg_catalog.pg_get_userbyid(s.owner) as principal_id, s.queue_id as service_queue_id
from broker_private.services s
where s.name is not null and s.service_id >= 65536
  and exists (select from broker_private.visible_services v where v.service_id = s.service_id);

comment on view broker.services is
'The services, as sys.services.';
comment on column broker.services.name is 'as create_service was told; matched byte by byte';
comment on column broker.services.service_id is 'what conversations refer to';
comment on column broker.services.principal_id is 'the role that owns it';
comment on column broker.services.service_queue_id is 'object_id of the queue that its messages go to';
