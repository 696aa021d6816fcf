-- The transmission status of what a side still wanted to send when the far side had ended.
--
-- That is when the far side's EndDialog or Error arrived. The view broker.transmission_queue calls
-- it with its reader's rights.
create or replace function broker_private.held_status(event "char")
returns text
language sql immutable
begin atomic
  select case event
    when '<far end>' then '9779: The remote end has ended the conversation: the message is held, and goes when this side ends it.'
    else '9784: An Error of the remote end has arrived: the message is held, and goes when this side ends the conversation.'
  end;
end;
