-- Notifies the sessions that sleep on the queue, once this transaction commits.
--
-- 0 is the transmission queue, 1 what waits for validation, -1 the workers, which wait for the next
-- timer. A transaction that has notified can't be prepared. So a session that uses PREPARE
-- TRANSACTION turns this off for itself, with SET pybroker.wake_ups = 'off'. Sleepers then find its
-- messages when they look by themselves. So they do while PostgreSQL's queue of notifications is
-- half full, as it gets when any session listens and stays in its transaction. A commit that finds
-- it full fails, whatever else it did.
create or replace function broker_private.wake_sleepers(queue integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('pybroker.wake_ups', true) is distinct from 'off' and pg_notification_queue_usage() < 0.5 then
    perform pg_notify('pybroker_' || queue, '');
  end if;
end
$$;
