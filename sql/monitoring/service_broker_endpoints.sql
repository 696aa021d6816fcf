-- The TCP endpoint of the worker whose home database this is, as sys.service_broker_endpoints.
--
-- The TLS of the workers chooses its cipher by itself, so encryption_algorithm is NULL. Ours: port,
-- ip_address, encryption_desc.
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
    select from broker_private.granted_objects g where g.class = '<tcp endpoint>' and g.securable_id = t.endpoint_id
  );

comment on view broker.service_broker_endpoints is
'The TCP endpoint of the worker whose home database this is, as sys.service_broker_endpoints.';
comment on column broker.service_broker_endpoints.name is 'as create_endpoint was told';
comment on column broker.service_broker_endpoints.endpoint_id is 'what other views refer to it by';
comment on column broker.service_broker_endpoints.principal_id is 'the role that owns it';
comment on column broker.service_broker_endpoints.protocol is 'always 2';
comment on column broker.service_broker_endpoints.protocol_desc is 'always TCP';
comment on column broker.service_broker_endpoints.type is 'always 3';
comment on column broker.service_broker_endpoints.type_desc is 'always SERVICE_BROKER';
comment on column broker.service_broker_endpoints.state is '0 STARTED, 1 STOPPED, 2 DISABLED';
comment on column broker.service_broker_endpoints.state_desc is 'the state in words';
comment on column broker.service_broker_endpoints.is_admin_endpoint is 'false: there is none';
comment on column broker.service_broker_endpoints.is_message_forwarding_enabled is 'whether messages for other workers are passed on';
comment on column broker.service_broker_endpoints.message_forwarding_size is 'megabytes of such messages that are held at most';
comment on column broker.service_broker_endpoints.connection_auth is 'always 4';
comment on column broker.service_broker_endpoints.connection_auth_desc is 'always CERTIFICATE';
comment on column broker.service_broker_endpoints.certificate_id is 'the certificate that the worker shows';
comment on column broker.service_broker_endpoints.encryption_algorithm is 'always NULL: TLS chooses its cipher by itself';
comment on column broker.service_broker_endpoints.encryption_algorithm_desc is 'TLS';
comment on column broker.service_broker_endpoints.port is 'where the worker listens; ours';
comment on column broker.service_broker_endpoints.ip_address is 'which address it listens on; NULL is all of them. Ours';
comment on column broker.service_broker_endpoints.encryption_desc is 'REQUIRED, SUPPORTED or DISABLED; ours';
