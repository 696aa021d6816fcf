-- broker.service_broker_endpoints: the TCP endpoint of the worker whose home database this is, as sys.service_broker_endpoints.
create or replace view broker.service_broker_endpoints as
select
  t.name,
  t.endpoint_id,
  t.owner as principal_id,
  'TCP'::text as protocol_desc,
  'SERVICE_BROKER'::text as type_desc,
  t.state as state_desc,
  t.listener_port as port,
  t.listener_ip as ip_address,
  t.is_message_forwarding_enabled,
  t.message_forwarding_size,
  'CERTIFICATE'::text as connection_auth_desc,
  t.certificate_id,
  t.encryption as encryption_desc
from broker_private.tcp_endpoint t;
