-- First key of the advisory locks by which senders learn whether anybody sleeps on a queue.
--
-- The second is the queue, 0 for the transmission queue. It is inlined.
create or replace function broker_private.sleepers_lock()
returns integer
language sql immutable
begin atomic
  select 1886937714;
end;
