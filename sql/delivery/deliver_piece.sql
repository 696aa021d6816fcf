-- Stores a piece of a message that came from another broker.
--
-- It has deliver's arguments, each of one element. When the last piece is there, deliver gets the
-- whole message. Answers as deliver, and how many bytes of the message are here. The sender goes on
-- from there, so only a piece that was lost is sent again. Idempotent. What there is no room for
-- (early_room) waits: it is sent again. What deliver would refuse without having seen the body is
-- refused with the first piece.
-- Locks: the dialog's counter, as deliver.
create or replace function broker_private.deliver_piece(
  from_broker uuid, conversation_ids uuid[], from_initiator boolean[], from_services text[], to_services text[], to_brokers uuid[],
  contracts text[], expirations timestamp with time zone[], encrypted boolean[], type_names text[], dialog_index integer[],
  type_index integer[], sequence_numbers bigint[], kinds text, bodies bytea[], piece_at bigint, total_bytes bigint,
  security_kinds text[], far_users text[], session_keys bytea[], acknowledged bigint[] default null,
  sent_at timestamp with time zone[] default null,
  out next_numbers bigint[], out fault_codes integer[], out fault_texts text[], out fault_is_final boolean[], out stored_bytes bigint
)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  problem constant text := broker_private.broker_problem();
  number constant bigint := sequence_numbers[1];
  piece_bytes constant integer := coalesce(octet_length(bodies[1]), 0);
  e broker_private.endpoints%rowtype;
  opened record;
  type_row broker_private.contract_messages%rowtype;
  side record;
  is_new boolean := false;
  is_open boolean;
  next_number bigint;
  whole bytea;
  space record;
begin
  if problem is not null then
    found := broker_private.refuse(28012, 'The broker of the target database is disabled.', problem);
  end if;
  if cardinality(conversation_ids) <> 1 or cardinality(sequence_numbers) <> 1 or kinds <> '<message>' or total_bytes > broker_private.largest_body()
    or piece_at < 0 or piece_at + piece_bytes > total_bytes
  then
    found := broker_private.refuse(
      28040, 'A piece of a message is not one.',
      'It is one message of kind M, and lies within its total_bytes, which are at most 1,000,000,000. See docs/wire-format.md.'
    );
  end if;
  stored_bytes := 0;
  select d.* into side
  from broker_private.sides_of(from_broker, conversation_ids, from_initiator, to_brokers, security_kinds, far_users, session_keys) d;
  if side.is_unpinned and side.refusal is null then
    side.refusal := broker_private.pin_dialog(side.endpoint_no, security_kinds[1], far_users[1], session_keys[1]);
  end if;
  if side.refusal is not null then
    next_numbers := array[0];
    fault_codes := array[-side.refusal];
    fault_texts := array[broker_private.fault_text(row(side.refusal, to_brokers[1])::broker_private.fault)];
    fault_is_final := array[side.refusal = 8495];
    return;
  end if;
  select x.* into e from broker_private.endpoints x where x.endpoint_no = side.endpoint_no;
  if not found then
    opened := broker_private.open_dialog(
      from_broker, conversation_ids[1], from_initiator[1], from_services[1], to_services[1], to_brokers[1], contracts[1], expirations[1],
      encrypted[1], number, security_kinds[1], far_users[1], session_keys[1], acknowledged[1]
    );
    if opened.endpoint_no is null then
      next_numbers := array[0];
      fault_codes := array[opened.fault_code];
      fault_texts := array[opened.fault_text];
      fault_is_final := array[coalesce(opened.is_final, false)];
      return;
    end if;
    select x.* into e from broker_private.endpoints x where x.endpoint_no = opened.endpoint_no;
    is_new := true;
  end if;
  select n.next_number into next_number
  from broker_private.sequence_counters n
  where n.endpoint_no = e.endpoint_no and n.kind = '<next expected>'
  order by n.epoch desc
  limit 1
  for update;
  next_numbers := array[next_number];
  fault_codes := array[null::integer];
  fault_texts := array[null::text];
  fault_is_final := array[false];

  is_open := e.local_end is null and not exists (
    select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event in ('<far end>', '<far error>', '<refused here>')
  );
  select k.* into type_row
  from broker_private.contract_messages k
  where k.contract_id = e.contract_id and k.message_type_name = type_names[1]
    and case when e.is_initiator then k.is_sent_by_target else k.is_sent_by_initiator end;
  if is_open and number > next_number and (acknowledged[1] > next_number) is not true then
    return;
  end if;
  if not is_open or acknowledged[1] > next_number or number < next_number or type_row.message_type_id is null or type_row.validation = '<empty>' then
    -- It is dropped, or refused whatever its body is.
    if is_new then
      delete from broker_private.groups g where g.group_no = e.group_no;
      delete from broker_private.sequence_counters n where n.endpoint_no = e.endpoint_no;
      delete from broker_private.dialog_security d where d.endpoint_no = e.endpoint_no;
      delete from broker_private.endpoints x where x.endpoint_no = e.endpoint_no;
    end if;
    select d.next_numbers, d.fault_codes, d.fault_texts, d.fault_is_final
    into next_numbers, fault_codes, fault_texts, fault_is_final
    from broker_private.deliver(
      from_broker, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts, expirations, encrypted, type_names,
      dialog_index, type_index, sequence_numbers, kinds, bodies, security_kinds, far_users, session_keys, acknowledged, sent_at
    ) d;
    return;
  end if;

  select h.stored_bytes into stored_bytes
  from broker_private.early_messages h
  where h.endpoint_no = e.endpoint_no and h.sequence_number = number and not h.is_whole and h.size = deliver_piece.total_bytes
    and h.sent_at is not distinct from deliver_piece.sent_at[1];
  if not found then
    stored_bytes := 0;
    delete from broker_private.early_messages h where h.endpoint_no = e.endpoint_no and h.sequence_number <= number;
    delete from broker_private.message_pieces p where p.endpoint_no = e.endpoint_no;
    insert into broker_private.early_messages (
      endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, kind, size, is_whole, stored_bytes, sent_at
    )
    values (e.endpoint_no, number, broker_private.clock(), e.queue_id, type_row.message_type_id, '<message>', total_bytes, false, 0, deliver_piece.sent_at[1]);
  end if;
  if piece_at = stored_bytes and piece_bytes > 0 then
    select r.room, r.is_first into space from broker_private.early_room(e.endpoint_no) r;
    if space.room < piece_bytes and not space.is_first then
      fault_codes := array[-9749];
      fault_texts := array['9749: There is no room for another piece now: too much of other messages from this broker, or from'
        ' all, is not complete yet.'];
      return;
    end if;
    insert into broker_private.message_pieces (endpoint_no, piece_at, piece) values (e.endpoint_no, deliver_piece.piece_at, bodies[1]);
    stored_bytes := stored_bytes + piece_bytes;
    update broker_private.early_messages h set stored_bytes = deliver_piece.stored_bytes
    where h.endpoint_no = e.endpoint_no and h.sequence_number = number;
  end if;
  if stored_bytes < total_bytes then
    return;
  end if;

  select string_agg(p.piece, '' order by p.piece_at) into whole from broker_private.message_pieces p where p.endpoint_no = e.endpoint_no;
  select d.next_numbers, d.fault_codes, d.fault_texts, d.fault_is_final
  into next_numbers, fault_codes, fault_texts, fault_is_final
  from broker_private.deliver(
    from_broker, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts, expirations, encrypted, type_names,
    dialog_index, type_index, sequence_numbers, kinds, array[whole], security_kinds, far_users, session_keys, acknowledged, sent_at
  ) d;
  -- A queue that is off takes it later, without another piece.
  if next_numbers[1] > number or fault_is_final[1] then
    delete from broker_private.early_messages h where h.endpoint_no = e.endpoint_no and h.sequence_number = number;
    delete from broker_private.message_pieces p where p.endpoint_no = e.endpoint_no;
  end if;
end
$$;
