-- Tells that a message was put into the queue.
--
-- 0 is the transmission queue, 1 are the incomplete messages. Whoever sleeps on it is woken when
-- the transaction commits. For the slow paths: SEND and deliver do the same in the statement that
-- inserts. The protocol is in conversation/sleep_on.sql.
-- Locks: the queue's advisory lock, shared, until the transaction ends; it is only tried.
create or replace function broker_private.note_arrival(queue integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), queue) then
    perform broker_private.wake_sleepers(queue);
  end if;
end
$$;
