-- Resets the floors of a queue that an old message is put into, as they may be above it.
--
-- To be called by whoever puts it there, in the same transaction.
--
-- The reset is a row too, so it is seen by exactly those who see the message. Nobody waits for
-- anybody, a raiser (raise_floors) neither; what he computed without seeing the message does not
-- count after the reset:
-- - A raiser takes his row's number first, then looks whether anybody resets, and then at the
--   messages. nextval keeps a lock on the sequence floor_resets until the end of the transaction,
--   and pg_locks shows it.
-- - Who began to reset after that look has a higher number. Who was at it then makes the raiser
--   give up. Whose reset was over, his messages were seen.
create or replace function broker_private.reset_floors(queue integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform nextval('broker_private.floor_resets');
  insert into broker_private.queue_floors (queue_id, number, floors, is_deep, decided, horizon, senders)
  values (queue, nextval('broker_private.floor_numbers'), array_fill(0::bigint, array[10]), false, 0, 0, '{}');
end
$$;
