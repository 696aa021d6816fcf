-- Marks the queue as received from by this transaction.
--
-- Refuses with 9617 if five before it have rolled back. RECEIVE has the case of a single reader
-- itself. Of many readers nearly each comes here, so it calls no other function while nothing has
-- failed.
--
-- What a transaction wrote is gone when it has rolled back, except the value of a sequence. So each
-- RECEIVE that returns messages writes its transaction's id into a sequence of the queue. The next
-- one asks the server how that transaction ended. Nothing else need be running for it. A savepoint
-- has no part in this, and a killed session has rolled back. A mark is: transaction id * 16 + 8 if
-- the second mark is in use + the rollbacks in a row counted before it. Count and id in one value
-- can't contradict each other, and two sessions that read the same mark count it once. Two marks
-- remember two transactions in progress; of more readers at once some go uncounted, never one too
-- many. A third one leaves both as they are, so that nearly each of many readers is done in one
-- look. Marks older than 31 transactions are replaced all the same: two readers that stay must not
-- hide for ever how others end.
-- Locks: none.
-- Errors: 9617.
create or replace function broker_private.note_receive(queue_name text, first_mark regclass, second_mark regclass)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this_transaction constant bigint := txid_current();
  first constant bigint := coalesce(pg_sequence_last_value(first_mark), 0);
  second bigint;
  first_outcome text;
  second_outcome text;
  rollbacks integer := 0;
  kept bigint;
  written bigint;
begin
  if first & 15 = 8 and this_transaction - (first >> 4) between 1 and 31 and txid_status(first >> 4) = 'in progress' then
    return;
  end if;
  second := coalesce(pg_sequence_last_value(second_mark), 0);
  if second >> 4 = this_transaction then
    return;
  end if;
  if greatest(first, second) >> 4 < this_transaction then
    first_outcome := txid_status(first >> 4);
    second_outcome := txid_status(second >> 4);
  else
    first_outcome := broker_private.outcome_of(first >> 4);
    second_outcome := broker_private.outcome_of(second >> 4);
  end if;
  if (first | second) & 7 > 0 or 'aborted' in (first_outcome, second_outcome) then
    rollbacks := broker_private.rollbacks_in_a_row(array[first_mark, second_mark]);
    if rollbacks >= 5 then
      -- It stays at five, whatever a transaction does that had received before.
      perform setval(second_mark, 0), setval(first_mark, 5);
      perform broker_private.refuse_poisoned_queue(queue_name);
    end if;
  end if;
  -- The older one is kept: one that lasts for long must not be forgotten for each that is quick.
  kept := case 'in progress' when second_outcome then second >> 4 when first_outcome then first >> 4 else 0 end;
  if kept > 0 or second > 0 then
    written := setval(second_mark, case when kept > 0 then (kept << 4) + rollbacks else 0 end);
  end if;
  written := setval(first_mark, (this_transaction << 4) + case when kept > 0 then 8 else 0 end + rollbacks);
end
$$;
