-- The oldest message of a dialog, in take's columns, with a piece of its body.
--
-- The piece begins where the far broker's part of message `number` ends, or at the first byte. No
-- row: nothing can be sent now. For bodies that are too large for a batch: a worker holds one piece
-- of them. As take it reads, and notes that the dialog goes to another broker.
-- Locks: the dialog's counter; if somebody has it, no row.
create or replace function broker_private.take_piece(
  destination integer, endpoint bigint, number bigint, stored_bytes bigint, piece_bytes integer,
  out endpoint_nos bigint[], out conversation_ids uuid[], out from_initiator boolean[], out from_services text[],
  out to_services text[], out to_brokers uuid[], out contracts text[], out expirations timestamp with time zone[],
  out encrypted boolean[], out type_names text[], out dialog_index integer[], out type_index integer[],
  out sequence_numbers bigint[], out kinds text, out bodies bytea[], out row_ids bigint[], out piece_at bigint, out total_bytes bigint,
  out owners text[], out far_users text[], out bindings text[], out established text[], out session_keys bytea[],
  out acknowledged bigint[], out sent_at timestamp with time zone[],
  out level integer
)
returns setof record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
  next_number bigint;
  is_over boolean;
begin
  if broker_private.broker_problem() is not null then
    return;
  end if;
  select c.next_number into next_number
  from broker_private.sequence_counters c
  where c.endpoint_no = take_piece.endpoint and c.kind = '<next acknowledged>'
  order by c.epoch desc
  limit 1
  for update skip locked;
  if not found then
    return;
  end if;
  -- What the far side has ended and this side has not is held.
  is_over := exists (select from broker_private.far_events f where f.endpoint_no = take_piece.endpoint and f.event in ('<far end>', '<far error>'))
    and exists (select from broker_private.endpoints e where e.endpoint_no = take_piece.endpoint and e.local_end is null);
  return query
  with head as materialized (
    select t.id, t.endpoint_no, t.message_type_id, t.kind, t.body, t.shared_body_no, t.enqueue_time, t.precedence,
      coalesce(octet_length(t.body), t.shared_size, 0)::bigint as size,
      case when next_number = take_piece.number then take_piece.stored_bytes else 0 end as piece_at
    from broker_private.transmission_messages t
    where t.endpoint_no = take_piece.endpoint and t.destination_no = take_piece.destination and (t.kind = '<error>' or not is_over)
    order by t.id
    limit 1
  ),
  noted as (
    insert into broker_private.far_events (endpoint_no, event)
    select h.endpoint_no, '<first taken>' from head h
    on conflict do nothing
  )
  select
    array[h.endpoint_no], array[e.conversation_id], array[e.is_initiator], array[coalesce(s.name, s.dropped_name)],
    array[e.far_service],
    array[coalesce(e.far_broker_instance, (
      select f.far_broker_instance from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event = '<broker known>'
    ))],
    array[coalesce(k.name, k.dropped_name)], array[e.expires_at], array[e.is_encrypted], array[y.name], array[1], array[1],
    array[next_number], h.kind::text,
    array[case
      when h.shared_body_no is null then substring(h.body from h.piece_at::integer + 1 for take_piece.piece_bytes)
      else (
        select substring(b.body from h.piece_at::integer + 1 for take_piece.piece_bytes)
        from broker_private.shared_bodies b
        where b.shared_body_no = h.shared_body_no
      )
    end],
    array[h.id], h.piece_at, h.size,
    array[broker_private.role_of_owner(s.owner)::text], array[broker_private.principal_name(coalesce(r.user_name, d.far_user))::text],
    array[case when r.is_anonymous then '<anonymous>' when not r.is_anonymous then '<full>' end], array[d.kind::text], array[d.session_key],
    array[next_number], array[h.enqueue_time],
    (select 10 - h.precedence from broker_private.broker_instance i where i.is_the_only_row and i.is_broker_priority_honored)
  from head h
  join broker_private.endpoints e on e.endpoint_no = h.endpoint_no
  join broker_private.services s on s.service_id = e.service_id
  join broker_private.contracts k on k.contract_id = e.contract_id
  join broker_private.message_types y on y.message_type_id = h.message_type_id
  left join broker_private.remote_service_bindings r on r.remote_service_name = e.far_service and e.is_initiator
  left join broker_private.dialog_security d on d.endpoint_no = e.endpoint_no;
end
$$;
