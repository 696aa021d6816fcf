-- sys.transmission_queue: when a message was sent is a datetime in UTC.
select
  t.conversation_handle, t.to_service_name, t.to_broker_instance, t.from_service_name, t.service_contract_name,
  (t.enqueue_time at time zone 'UTC')::timestamp(3) as enqueue_time, t.message_sequence_number, t.message_type_name,
  t.is_conversation_error, t.is_end_of_dialog, t.message_body, t.transmission_status, t.priority
from broker.transmission_queue t
