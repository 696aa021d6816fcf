-- What was wrong with a message that was not taken.
--
-- For the Error message or the sender's transmission status.
create or replace function broker_private.fault_text(fault broker_private.fault)
returns text
language sql immutable
begin atomic
  select case (fault).code
    when 8430 then pg_catalog.format('The message body failed the validation of message type "%s".', (fault).message_type_name)
    when 8437 then pg_catalog.format('The message type "%s" is sent by the target, and the initiator sent it.', (fault).message_type_name)
    when 8457 then pg_catalog.format('The message type "%s" is sent by the initiator, and the target sent it.', (fault).message_type_name)
    when 8495 then 'The conversation has already been acknowledged by another instance of this service.'
    when 8498 then pg_catalog.format('The message type "%s" is not part of the contract there.', (fault).message_type_name)
    when 9615 then pg_catalog.format('A message of type "%s" failed XML validation on the target service.', (fault).message_type_name)
    when 9616 then pg_catalog.format('A message of type "%s" does not match the XML schemas that the target service demands.', (fault).message_type_name)
    when 9736 then '9736: The message came with another security than the dialog has: see docs/dialog-security.md.'
    when 9795 then pg_catalog.format('9795: The broker instance "%s" is not where the route leads to.', (fault).message_type_name)
    when 9719 then 'The database for this conversation endpoint is attached or restored.'
    when 9720 then 'The database for the remote conversation endpoint is attached or restored.'
    when 9749 then '9749: The target queue is disabled; the message is sent again until it is enabled.'
  end;
end;
