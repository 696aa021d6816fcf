-- sys.conversation_endpoints: the broker's moments are datetimes in UTC.
select
  e.conversation_handle, e.conversation_id, e.is_initiator, e.service_contract_id, e.conversation_group_id, e.service_id,
  (e.lifetime at time zone 'UTC')::timestamp(3) as lifetime, e.state, e.state_desc, e.far_service, e.far_broker_instance,
  e.principal_id, e.far_principal_id, e.outbound_session_key_identifier, e.inbound_session_key_identifier,
  (e.security_timestamp at time zone 'UTC')::timestamp(3) as security_timestamp,
  (e.dialog_timer at time zone 'UTC')::timestamp(3) as dialog_timer,
  e.send_sequence, e.last_send_tran_id, e.end_dialog_sequence, e.receive_sequence, e.receive_sequence_frag,
  e.system_sequence, e.first_out_of_order_sequence, e.last_out_of_order_sequence, e.last_out_of_order_frag, e.is_system,
  e.priority, e.is_encrypted
from broker.conversation_endpoints e
