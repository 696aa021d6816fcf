-- Under which destination a message of this endpoint waits.
--
-- 0 if its other side is in this database and not reached by the network. No route can lead such a
-- message elsewhere.
create or replace function broker_private.destination_for(e broker_private.endpoints)
returns integer
language sql stable
begin atomic
  select case
    when (e).path = '<delayed>' and exists (
      select from broker_private.endpoints f
      where f.conversation_id = (e).conversation_id and f.is_initiator <> (e).is_initiator
    ) then 0
    else (e).destination_no
  end;
end;
