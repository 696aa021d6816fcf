-- broker.dm_broker_connections: the connections of the workers whose home database this is, as
-- sys.dm_broker_connections, as of a few seconds. What such a connection doesn't have is NULL.
-- Ours: address, worker_id. A fragment is a message, or a piece of a large one; a send and a
-- receive are frames. Rows only for the database's owner and members of pg_monitor.
create or replace view broker.dm_broker_connections with (security_barrier) as
select
  c.connection_id,
  null::uuid as transport_stream_id,
  c.state,
  (array['NEW', 'CONNECTING', 'CONNECTED', 'LOGGED_IN', 'CLOSED'])[c.state] as state_desc,
  c.connect_time,
  c.login_time,
  'CERTIFICATE'::text as authentication_method,
  c.user_name as principal_name,
  null::text as remote_user_name,
  c.last_activity_time,
  c.is_accept,
  case c.state when 2 then 0 when 3 then 10 else 12 end::smallint as login_state,
  case c.state when 2 then 'INITIAL' when 3 then 'WAIT VALIDATION' else 'ONLINE' end as login_state_desc,
  k.certificate_id as peer_certificate_id,
  null::smallint as encryption_algorithm,
  c.encryption as encryption_algorithm_desc,
  c.receives_posted,
  c.is_receive_flow_controlled,
  c.sends_posted,
  c.is_send_flow_controlled,
  c.bytes_sent as total_bytes_sent,
  c.bytes_received as total_bytes_received,
  c.messages_sent as total_fragments_sent,
  c.messages_received as total_fragments_received,
  c.frames_sent as total_sends,
  c.frames_received as total_receives,
  c.peer_arbitration_id,
  c.address,
  c.worker_id
from broker_private.connections c
join broker_private.live_workers w on w.worker_id = c.worker_id
left join broker_private.certificates k on k.name = c.certificate_name
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE') or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE');
