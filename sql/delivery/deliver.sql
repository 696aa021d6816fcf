-- hot path
-- Stores a batch that came from another broker.
--
-- Returns, for each dialog of the batch, the number that it expects next, and the fault, if a
-- message could not be taken.
--
-- deliver_plain stores a batch of messages on dialogs that are known here, unless there is
-- something odd in it. All else is deliver_fully's, which says what the arguments are, and what is
-- refused.
create or replace function broker_private.deliver(
  from_broker uuid, conversation_ids uuid[], from_initiator boolean[], from_services text[], to_services text[], to_brokers uuid[],
  contracts text[], expirations timestamp with time zone[], encrypted boolean[], type_names text[], dialog_index integer[],
  type_index integer[], sequence_numbers bigint[], kinds text, bodies bytea[],
  security_kinds text[], far_users text[], session_keys bytea[], acknowledged bigint[] default null,
  sent_at timestamp with time zone[] default null,
  out next_numbers bigint[], out fault_codes integer[], out fault_texts text[], out fault_is_final boolean[]
)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  dialogs constant integer := cardinality(conversation_ids);
begin
  -- What repeats nothing can't tell that the sender's database has gone back.
  if kinds = repeat('<message>', cardinality(dialog_index)) and acknowledged is not null then
    next_numbers := broker_private.deliver_plain(
      from_broker, conversation_ids, from_initiator, to_brokers, type_names, dialog_index, type_index,
      sequence_numbers, bodies, security_kinds, far_users, session_keys, acknowledged, sent_at
    );
  end if;
  if next_numbers is null then
    select f.* into next_numbers, fault_codes, fault_texts, fault_is_final
    from broker_private.deliver_fully(
      from_broker, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts, expirations,
      encrypted, type_names, dialog_index, type_index, sequence_numbers, kinds, bodies, security_kinds, far_users,
      session_keys, acknowledged, sent_at
    ) f;
    return;
  end if;
  fault_codes := array_fill(null::integer, array[dialogs]);
  fault_texts := array_fill(null::text, array[dialogs]);
  fault_is_final := array_fill(false, array[dialogs]);
end
$$;
