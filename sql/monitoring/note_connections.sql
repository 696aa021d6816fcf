-- Replaces all connections that a worker has.
--
-- They are an array of objects with the names of the columns of broker_private.connections. After
-- note_worker, in its transaction.
-- Locks: the worker's rows, which note_worker holds already.
create or replace function broker_private.note_connections(worker uuid, connections jsonb)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from broker_private.connections c where c.worker_id = note_connections.worker;
  insert into broker_private.connections (
    connection_id, worker_id, address, is_accept, state, connect_time, login_time, last_activity_time, user_name, certificate_name, encryption,
    peer_arbitration_id, receives_posted, is_receive_flow_controlled, sends_posted, is_send_flow_controlled, bytes_sent, bytes_received,
    messages_sent, messages_received, frames_sent, frames_received
  )
  select
    c.connection_id, note_connections.worker, c.address, c.is_accept, c.state, c.connect_time, c.login_time, c.last_activity_time, c.user_name,
    c.certificate_name, c.encryption, c.peer_arbitration_id, c.receives_posted, c.is_receive_flow_controlled, c.sends_posted,
    c.is_send_flow_controlled, c.bytes_sent, c.bytes_received, c.messages_sent, c.messages_received, c.frames_sent, c.frames_received
  from jsonb_to_recordset(note_connections.connections) as c (
    connection_id uuid, address text, is_accept boolean, state smallint, connect_time timestamp with time zone, login_time timestamp with time zone,
    last_activity_time timestamp with time zone, user_name name, certificate_name text, encryption text, peer_arbitration_id uuid,
    receives_posted integer, is_receive_flow_controlled boolean, sends_posted integer, is_send_flow_controlled boolean, bytes_sent bigint,
    bytes_received bigint, messages_sent bigint, messages_received bigint, frames_sent bigint, frames_received bigint
  );
end
$$;
