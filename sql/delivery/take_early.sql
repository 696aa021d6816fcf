-- What came too early on the dialogs of a batch, in the shape of deliver's arguments.
--
-- It is handled as if the batch had brought it. Each message has one type, counted from 1. It is
-- removed: what is still too early is kept again. What the batch itself brings is left out, and
-- what an Error of the batch makes void.
-- Locks: called by deliver, which holds the dialogs' counters.
create or replace function broker_private.take_early(
  endpoint_nos bigint[], dialog_index integer[], sequence_numbers bigint[], kinds text,
  out early_dialogs integer[], out early_types text[], out early_numbers bigint[], out early_kinds text, out early_bodies bytea[],
  out early_sent_at timestamp with time zone[]
)
returns record
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  with brought as (
    select endpoint_nos[m.dialog] as endpoint_no, m.number, m.kind
    from unnest(take_early.dialog_index, take_early.sequence_numbers, string_to_array(take_early.kinds, null)) as m (dialog, number, kind)
  ),
  taken as (
    delete from broker_private.early_messages h
    where h.endpoint_no = any (take_early.endpoint_nos) and h.is_whole
    returning h.endpoint_no, h.sequence_number, h.kind, h.message_type_id, h.body, h.sent_at
  )
  select
    array_agg(array_position(take_early.endpoint_nos, t.endpoint_no) order by t.endpoint_no, t.sequence_number),
    array_agg(y.name order by t.endpoint_no, t.sequence_number), array_agg(t.sequence_number order by t.endpoint_no, t.sequence_number),
    string_agg(t.kind::text, '' order by t.endpoint_no, t.sequence_number), array_agg(t.body order by t.endpoint_no, t.sequence_number),
    array_agg(t.sent_at order by t.endpoint_no, t.sequence_number)
  into early_dialogs, early_types, early_numbers, early_kinds, early_bodies, early_sent_at
  from taken t
  join broker_private.message_types y on y.message_type_id = t.message_type_id
  where not exists (
    select from brought b where b.endpoint_no = t.endpoint_no and (b.number = t.sequence_number or b.kind = '<error>')
  );
end
$$;
