-- The connections of this home database's workers, as sys.dm_broker_connections.
--
-- They are as of a few seconds ago. What such a connection doesn't have is NULL.
--
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

comment on view broker.dm_broker_connections is
'Connections of the workers whose home database this is, as sys.dm_broker_connections, as of a few seconds. Rows only for the database''s owner and members of pg_monitor. A fragment is a message, or a piece of a large one.';
comment on column broker.dm_broker_connections.connection_id is 'made when the connection was opened; the two sides have different ones';
comment on column broker.dm_broker_connections.transport_stream_id is 'always NULL: TLS has no stream of its own';
comment on column broker.dm_broker_connections.state is '1 NEW, 2 CONNECTING, 3 CONNECTED, 4 LOGGED_IN, 5 CLOSED';
comment on column broker.dm_broker_connections.state_desc is 'the state in words';
comment on column broker.dm_broker_connections.connect_time is 'when TCP was connected';
comment on column broker.dm_broker_connections.login_time is 'when the certificates had been checked; NULL before';
comment on column broker.dm_broker_connections.authentication_method is 'always CERTIFICATE';
comment on column broker.dm_broker_connections.principal_name is 'the user whom the other side''s certificate stands for';
comment on column broker.dm_broker_connections.remote_user_name is 'always NULL: a worker is known by its certificate only';
comment on column broker.dm_broker_connections.last_activity_time is 'of the last frame in either direction';
comment on column broker.dm_broker_connections.is_accept is 'true where the other side dialled';
comment on column broker.dm_broker_connections.login_state is '0 INITIAL, 10 WAIT VALIDATION, 12 ONLINE';
comment on column broker.dm_broker_connections.login_state_desc is 'the login''s state in words';
comment on column broker.dm_broker_connections.peer_certificate_id is 'the registered certificate of the other side';
comment on column broker.dm_broker_connections.encryption_algorithm is 'always NULL: TLS chooses its cipher by itself';
comment on column broker.dm_broker_connections.encryption_algorithm_desc is 'how the connection is encrypted, in words';
comment on column broker.dm_broker_connections.receives_posted is 'frames that are being read';
comment on column broker.dm_broker_connections.is_receive_flow_controlled is 'whether reading is held back, as the databases are behind';
comment on column broker.dm_broker_connections.sends_posted is 'frames that wait to be written';
comment on column broker.dm_broker_connections.is_send_flow_controlled is 'whether writing is held back, as the other side doesn''t read';
comment on column broker.dm_broker_connections.total_bytes_sent is 'bytes of frames, before TLS';
comment on column broker.dm_broker_connections.total_bytes_received is 'bytes of frames, after TLS';
comment on column broker.dm_broker_connections.total_fragments_sent is 'messages, or pieces of large ones, that left';
comment on column broker.dm_broker_connections.total_fragments_received is 'messages, or pieces of large ones, that came';
comment on column broker.dm_broker_connections.total_sends is 'frames that left';
comment on column broker.dm_broker_connections.total_receives is 'frames that came';
comment on column broker.dm_broker_connections.peer_arbitration_id is 'the other worker''s id, by which one of two connections is kept';
comment on column broker.dm_broker_connections.address is 'host and port of the other side; ours';
comment on column broker.dm_broker_connections.worker_id is 'the worker that reports this row; ours';
