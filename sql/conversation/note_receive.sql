-- broker_private.note_receive(queue name, marks): marks the queue as received from by this transaction, and refuses with 9617 if five before it have rolled back.
-- RECEIVE has the plain case itself; this is called for the others.
--
-- What a transaction wrote is gone when it has rolled back, except the value of a sequence. So each RECEIVE that returns messages writes its
-- transaction's id into a sequence of the queue, the next one asks the server how that transaction ended, and nothing else need be running for it.
-- A savepoint has no part in this, and a killed session has rolled back.
-- A mark is: transaction id * 16 + 8 if the second mark is in use + the rollbacks in a row counted before it. Count and id in
-- one value can't contradict each other, and two sessions that read the same mark count it once.
-- Two marks remember two transactions in progress; of more readers at once some go uncounted, never one too many.
-- Locks: none. Errors: 9617.
create or replace function broker_private.note_receive(queue_name text, marks regclass[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this_transaction constant bigint := txid_current();
  first_mark constant bigint := coalesce(pg_sequence_last_value(marks[1]), 0);
  second_mark constant bigint := coalesce(pg_sequence_last_value(marks[2]), 0);
  rollbacks integer;
  kept bigint := 0;
begin
  if second_mark >> 4 = this_transaction then
    return;
  end if;
  rollbacks := broker_private.rollbacks_in_a_row(marks);
  if rollbacks >= 5 then
    -- It stays at five, whatever a transaction does that had received before.
    perform setval(marks[2], 0), setval(marks[1], 5);
    perform broker_private.refuse_poisoned_queue(queue_name);
  end if;
  -- The older one is kept: one that lasts for long must not be forgotten for each that is quick.
  if broker_private.outcome_of(second_mark >> 4) = 'in progress' then
    kept := second_mark >> 4;
  elsif broker_private.outcome_of(first_mark >> 4) = 'in progress' then
    kept := first_mark >> 4;
  end if;
  if kept > 0 or second_mark > 0 then
    perform setval(marks[2], case when kept > 0 then (kept << 4) + rollbacks else 0 end);
  end if;
  perform setval(marks[1], (this_transaction << 4) + case when kept > 0 then 8 else 0 end + rollbacks);
end
$$;
