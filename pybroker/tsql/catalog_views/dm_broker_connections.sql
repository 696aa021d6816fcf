-- sys.dm_broker_connections: times are those of the server, as what GETDATE() gives.
select
  c.connection_id, c.transport_stream_id, c.state, c.state_desc, c.connect_time::timestamp(3) as connect_time,
  c.login_time::timestamp(3) as login_time, c.authentication_method, c.principal_name, c.remote_user_name,
  c.last_activity_time::timestamp(3) as last_activity_time, c.is_accept, c.login_state, c.login_state_desc,
  c.peer_certificate_id, c.encryption_algorithm, c.encryption_algorithm_desc, c.receives_posted,
  c.is_receive_flow_controlled, c.sends_posted, c.is_send_flow_controlled, c.total_bytes_sent, c.total_bytes_received,
  c.total_fragments_sent, c.total_fragments_received, c.total_sends, c.total_receives, c.peer_arbitration_id, c.address,
  c.worker_id
from broker.dm_broker_connections c
