-- What \dT+ broker.message and \d+ broker.message say.
--
-- The type itself is migration 0001's: a function returns it, so it is never made anew.
comment on type broker.message is
'A message as RECEIVE returns it, with Service Broker''s columns in its order.';
comment on column broker.message.status is 'RECEIVE returns 0. In the view of a queue: 1 ready, 2 incomplete, 0 received and 3 a copy of what was sent, both kept by RETENTION';
comment on column broker.message.priority is '1 to 10, its conversation''s';
comment on column broker.message.queuing_order is 'counts up as messages come into the queue';
comment on column broker.message.conversation_group_id is 'the group that RECEIVE has locked';
comment on column broker.message.conversation_handle is 'what to answer on';
comment on column broker.message.message_sequence_number is 'its place in the conversation, from 0; each side counts for itself';
comment on column broker.message.service_name is 'the service that got it';
comment on column broker.message.service_id is 'as in broker.services';
comment on column broker.message.service_contract_name is 'of its conversation';
comment on column broker.message.service_contract_id is 'of its conversation''s contract';
comment on column broker.message.message_type_name is 'as SEND named it';
comment on column broker.message.message_type_id is 'as in broker.service_message_types';
comment on column broker.message.validation is 'N none, E empty, X XML, and ours J JSON';
comment on column broker.message.message_body is 'bytes as they were sent; text is UTF-8; NULL is no body';
comment on column broker.message.message_id is 'the same on its whole way';
comment on column broker.message.message_enqueue_time is 'when it came into this queue; ours';
