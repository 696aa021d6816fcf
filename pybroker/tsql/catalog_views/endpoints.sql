-- sys.endpoints: the endpoint of the worker whose home database this is.
select
  e.name, e.endpoint_id, e.principal_id, e.protocol, 'TCP' as protocol_desc, e.type, 'SERVICE_BROKER' as type_desc,
  e.state, e.state_desc, e.is_admin_endpoint, e.port, e.ip_address, false as is_dynamic_port
from broker.service_broker_endpoints e
