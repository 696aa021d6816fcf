-- hot path
-- Stores a message that came alone, as most do where there are few.
--
-- Returns the number that its dialog expects next. If there is anything odd in it, it stores
-- nothing and returns null, and deliver goes on. Odd is what it is for deliver and deliver_plain.
--
-- What is read before the counter is moved may be of the time before it was free. That is true of
-- group, queue and end at any time, as an arrival locks none of them (sql/README.md, "What moves").
-- What another arrival leaves is looked at afterwards, and if it is odd, the counter is put back.
-- Locks: the dialog's counter.
-- Plan: each table by its key, in a statement of its own: a join costs more than two of them.
-- Why: arrays, aggregates and joins cost 450,000 instructions where there is one of each.
create or replace function broker_private.deliver_one(
  from_broker uuid, conversation uuid, is_from_initiator boolean, to_broker uuid, type_name text,
  number bigint, content bytea, security_kind text, sender text, dialog_key bytea,
  acknowledged bigint, sent timestamp with time zone
)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
  endpoint bigint;
  conversation_group bigint;
  queue integer;
  level smallint;
  contract integer;
  type_id integer;
begin
  select e.endpoint_no, e.group_no, e.queue_id, 10 - e.priority, e.contract_id
  into endpoint, conversation_group, queue, level, contract
  from broker_private.endpoints e
  where e.conversation_id = conversation and e.is_initiator = not is_from_initiator and e.local_end is null;
  if (endpoint > 0 and number >= acknowledged) is not true then
    return null;
  end if;
  if security_kind <> '<same worker>' then
    perform from broker_private.dialog_security y
    where y.endpoint_no = endpoint and y.kind::text = security_kind
      and case y.kind
        when '<clear>' then true
        when '<anonymous>' then
          not is_from_initiator or substring(y.session_key, 1, 16) = substring(dialog_key, 1, 16)
        when '<full>' then sender = broker_private.far_user_of(endpoint, y.far_user)
      end;
    if not found then
      return null;
    end if;
  end if;
  if not is_from_initiator then
    perform from broker_private.far_events f
    where f.endpoint_no = endpoint and f.event = '<broker known>' and f.far_broker_instance = from_broker;
    if not found then
      return null;
    end if;
  end if;
  select k.message_type_id into type_id
  from broker_private.contract_messages k
  where k.contract_id = contract and k.message_type_name = type_name and k.validation = '<no validation>'
    and case when is_from_initiator then k.is_sent_by_initiator else k.is_sent_by_target end;
  if type_id is null then
    return null;
  end if;

  update broker_private.sequence_counters n
  set
    next_number = number + 1, epoch = (number + 1) >> 7, sent_before = n.sent_at, sent_at = sent,
    is_confirmed = n.is_confirmed or acknowledged > 0
  where n.endpoint_no = endpoint and n.kind = '<next expected>' and n.epoch = number >> 7 and n.next_number = number;
  if not found then
    return null;
  end if;
  perform from broker_private.far_events f
  where f.endpoint_no = endpoint and f.event in ('<far end>', '<far error>', '<refused here>')
  union all
  select from broker_private.early_messages h where h.endpoint_no = endpoint and h.is_whole
  union all
  select from broker_private.incomplete_messages i where i.endpoint_no = endpoint
  union all
  select from broker_private.queues q where q.queue_id = queue and not q.is_enqueue_enabled
  union all
  select from broker_private.broker_instance b
  where b.is_the_only_row
    and (broker_private.is_surely_on(b) and (b.service_broker_guid = to_broker) is not false) is not true
  limit 1;
  if found then
    update broker_private.sequence_counters n
    set next_number = number, epoch = number >> 7, sent_at = n.sent_before
    where n.endpoint_no = endpoint and n.kind = '<next expected>' and n.epoch = (number + 1) >> 7
      and n.next_number = number + 1;
    return null;
  end if;
  insert into broker_private.messages (
    group_no, endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, precedence,
    urgency, body
  )
  values (
    conversation_group, endpoint, number, broker_private.clock(), queue, type_id, level, 2, content
  );
  if not pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), queue) then
    perform broker_private.wake_sleepers(queue);
  end if;
  return number + 1;
end
$$;
