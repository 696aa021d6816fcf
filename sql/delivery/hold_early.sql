-- Keeps what a batch brought with a number beyond the one that its dialog expects.
--
-- deliver meets it again when what comes before it is there. Only of the dialogs that has_gap
-- names. What is too far ahead is not kept, so that a peer can't fill the table. Nor is what there
-- is no room for (early_room), or what the dialog's contract doesn't know. All of that is sent
-- again.
-- Locks: called by deliver, which holds the dialogs' counters.
create or replace function broker_private.hold_early(
  endpoint_nos bigint[], has_gap boolean[], dialog_index integer[], type_names text[], type_index integer[], sequence_numbers bigint[],
  kinds text, bodies bytea[], sent_at timestamp with time zone[]
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  -- A batch is of one broker, whichever of its dialogs is asked for.
  if (select r.room from broker_private.early_room((select max(u.no) from unnest(endpoint_nos) as u (no))) r) <= 0 then
    return;
  end if;
  insert into broker_private.early_messages (endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, kind, size, body, sent_at)
  select
    e.endpoint_no, a.number, broker_private.clock(), e.queue_id, coalesce(k.message_type_id, 2), a.kind::"char",
    coalesce(octet_length(a.body), 0), a.body, a.sent_at
  from (
    select
      endpoint_nos[m.dialog] as endpoint_no, hold_early.has_gap[m.dialog] as has_gap, m.number, m.body, m.sent_at,
      hold_early.type_names[m.type_index] as type_name, m.kind
    from unnest(
      hold_early.dialog_index, hold_early.type_index, hold_early.sequence_numbers, hold_early.bodies, hold_early.sent_at,
      string_to_array(hold_early.kinds, null)
    ) as m (dialog, type_index, number, body, sent_at, kind)
  ) a
  join broker_private.endpoints e on e.endpoint_no = a.endpoint_no and e.local_end is null
  left join broker_private.contract_messages k on k.contract_id = e.contract_id and k.message_type_name = a.type_name and a.kind = '<message>'
  cross join lateral broker_private.newest_counter(e.endpoint_no, '<next expected>') c
  where a.has_gap and a.number > c.next_number and a.number < c.next_number + 1000
    and (a.kind = '<end dialog>' and a.body is null or a.kind = '<message>' and k.message_type_id is not null)
    and (select coalesce(sum(h.size), 0) from broker_private.early_messages h where h.endpoint_no = e.endpoint_no and h.is_whole) < 67108864
  on conflict do nothing;
end
$$;
