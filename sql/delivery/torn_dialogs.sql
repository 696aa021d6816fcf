-- The dialogs of a batch whose two sides don't remember the same, by their place in it.
--
-- One of the two databases has gone back to an earlier state: a restored backup, a standby that was
-- behind. With the number of the Error for the side here and for the sender's.
--
-- It was this database, if the sender has an acknowledgement of what is still expected here. It was
-- the sender's, if its message with the number of the last one that was taken here is another one.
-- An Error of the sender is taken as it is, and ends the dialog anyway.
-- Locks: called by deliver, which holds the dialogs' counters.
create or replace function broker_private.torn_dialogs(
  endpoint_nos bigint[], acknowledged bigint[], dialog_index integer[], sequence_numbers bigint[], kinds text, sent_at timestamp with time zone[]
)
returns table (place integer, own_code integer, far_code integer)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  select d.place::integer, case when d.acknowledged > c.next_number then 9719 else 9720 end, case when d.acknowledged > c.next_number then 9720 else 9719 end
  from unnest(torn_dialogs.endpoint_nos, torn_dialogs.acknowledged) with ordinality as d (endpoint_no, acknowledged, place)
  cross join lateral broker_private.newest_counter(d.endpoint_no, '<next expected>') c
  join (
    -- Grouped once: a look for each dialog would be one at all messages for each.
    select
      m.dialog, array_agg(m.number) as numbers, array_agg(m.sent_at) as sent_at, bool_or(m.kind = '<error>') as has_error
    from unnest(
      torn_dialogs.dialog_index, torn_dialogs.sequence_numbers, torn_dialogs.sent_at,
      string_to_array(torn_dialogs.kinds, null)
    ) as m (dialog, number, sent_at, kind)
    group by m.dialog
  ) g on g.dialog = d.place
  cross join lateral (
    select coalesce(bool_or(m.number = c.next_number - 1 and m.sent_at <> c.sent_at), false) as is_other
    from unnest(g.numbers, g.sent_at) as m (number, sent_at)
  ) b
  where not g.has_error and (d.acknowledged > c.next_number or b.is_other);
end
$$;
