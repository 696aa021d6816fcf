-- hot path
-- A dialog's next number of a kind, where it stands, and what is known of it.
-- Locks: none, and a function in FROM can't be locked: who needs the lock locks the row at its
-- location.
-- Plan: inlined; sequence_counters_newest, one row. The caller names it in FROM, and has no row
-- security or definer's rights between. So no view calls it: its reader would need rights on the
-- table.
-- Why: an old snapshot keeps dead versions in the index. In descending order of epochs, a row is
-- met after at most 128 of them. All of the core reads a counter by this function, take, deliver
-- and acknowledge included.
create or replace function broker_private.newest_counter(endpoint bigint, of_kind "char")
returns table (
  location tid, next_number bigint, is_confirmed boolean, sent_at timestamp with time zone
)
language sql stable
begin atomic
  select n.ctid, n.next_number, n.is_confirmed, n.sent_at
  from broker_private.sequence_counters n
  where n.endpoint_no = endpoint and n.kind = of_kind
  order by n.epoch desc
  limit 1;
end;
