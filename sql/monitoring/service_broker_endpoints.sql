-- broker.service_broker_endpoints: the TCP endpoint of the worker whose home database this is, as
-- sys.service_broker_endpoints. The TLS of the workers chooses its cipher by itself, so
-- encryption_algorithm is NULL. Ours: port, ip_address, encryption_desc.
create or replace view broker.service_broker_endpoints with (security_barrier) as
select
  t.name,
  t.endpoint_id,
  pg_catalog.pg_get_userbyid(t.owner) as principal_id,
  2::smallint as protocol,
  'TCP'::text as protocol_desc,
  3::smallint as type,
  'SERVICE_BROKER'::text as type_desc,
  case t.state when 'STARTED' then 0 when 'STOPPED' then 1 else 2 end::smallint as state,
  t.state as state_desc,
  false as is_admin_endpoint,
  t.is_message_forwarding_enabled,
  t.message_forwarding_size,
  4::smallint as connection_auth,
  'CERTIFICATE'::text as connection_auth_desc,
  t.certificate_id,
  null::smallint as encryption_algorithm,
  'TLS'::text as encryption_algorithm_desc,
  t.listener_port as port,
  t.listener_ip as ip_address,
  t.encryption as encryption_desc
from broker_private.tcp_endpoint t
where exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, t.owner, 'USAGE')
  or exists (
    select from broker_private.granted_objects g where g.class = 'P' and g.securable_id = t.endpoint_id
  );
