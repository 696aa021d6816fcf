-- hot path
-- Stores a batch in which nothing is out of the ordinary.
--
-- Returns the number that each dialog expects next, in the order of the batch. Else it stores
-- nothing and returns null, and deliver goes its long way. That is so if the batch has anything but
-- what its dialogs expect next, in order and without a gap. It is so for dialogs of two contracts
-- or of both sides. It is so where a side has ended, its queue is off, or something of it waits for
-- a worker. And it is so if the contract doesn't know a type, doesn't allow it from there, or
-- demands a look at the body.
--
-- dialogs: endpoints, in their order and each once, the place of each in the batch, its counter and
-- that counter's number. A message passes through no join and no window here. What it needs of its
-- dialog and of its type is an element of an array.
-- Locks: none. The caller holds the dialogs' counters since an earlier statement, so they are where
-- it saw them. What was committed before they were free is visible here.
-- Plan: each table by an array of keys.
create or replace function broker_private.deliver_plain(
  endpoint_nos bigint[], places integer[], counters tid[], expected bigint[], type_names text[],
  dialog_index integer[], type_index integer[], sequence_numbers bigint[], bodies bytea[],
  sent_at timestamp with time zone[]
)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  dialogs constant integer := cardinality(endpoint_nos);
  group_nos bigint[];
  queue_ids integer[];
  precedences smallint[];
  -- Of all dialogs one contract, and one side of it.
  contract integer;
  is_initiators boolean;
  is_one boolean;
  type_ids integer[];
  type_name text;
  type_id integer;
  -- By the places of the batch.
  ranks integer[];
  next_numbers bigint[];
  last_places bigint[];
  dialog integer;
  queue integer;
  woken integer;
begin
  select
    array_agg(e.group_no), array_agg(e.queue_id), array_agg((10 - e.priority)::smallint),
    min(e.contract_id), bool_and(e.is_initiator),
    min(e.contract_id) = max(e.contract_id) and bool_and(e.is_initiator) = bool_or(e.is_initiator)
  into group_nos, queue_ids, precedences, contract, is_initiators, is_one
  from (
    select x.group_no, x.queue_id, x.priority, x.contract_id, x.is_initiator
    from broker_private.endpoints x
    where x.endpoint_no = any (deliver_plain.endpoint_nos) and x.local_end is null
    order by x.endpoint_no
  ) e;
  -- The types are asked for one by one.
  if (
    is_one and cardinality(group_nos) = dialogs and cardinality(dialog_index) = cardinality(bodies)
    and cardinality(type_names) <= 8
  ) is not true then
    return null;
  end if;
  perform from broker_private.far_events f
  where f.endpoint_no = any (deliver_plain.endpoint_nos) and f.event in ('<far end>', '<far error>', '<refused here>')
  union all
  select from broker_private.early_messages h
  where h.endpoint_no = any (deliver_plain.endpoint_nos) and h.is_whole
  union all
  select from broker_private.incomplete_messages i
  where i.endpoint_no = any (deliver_plain.endpoint_nos)
  union all
  select from broker_private.queues q
  where q.queue_id = any (queue_ids) and not q.is_enqueue_enabled
  limit 1;
  if found then
    return null;
  end if;
  for type_name, type_id in
    select k.message_type_name, k.message_type_id
    from broker_private.contract_messages k
    where k.contract_id = contract and k.message_type_name = any (deliver_plain.type_names)
      and k.validation = '<no validation>'
      and case when is_initiators then k.is_sent_by_target else k.is_sent_by_initiator end
  loop
    type_ids[array_position(type_names, type_name)] := type_id;
  end loop;

  for rank in 1 .. dialogs loop
    dialog := places[rank];
    ranks[dialog] := rank;
    next_numbers[dialog] := expected[rank];
  end loop;
  for place in 1 .. cardinality(dialog_index) loop
    dialog := dialog_index[place];
    if (
      sequence_numbers[place] = next_numbers[dialog] and type_ids[type_index[place]] > 0
    ) is not true then
      return null;
    end if;
    next_numbers[dialog] := next_numbers[dialog] + 1;
    last_places[dialog] := place;
  end loop;
  if cardinality(last_places) <> dialogs or array_position(last_places, null) is not null then
    return null;
  end if;

  update broker_private.sequence_counters n
  set
    next_number = next_numbers[places[width_bucket(n.endpoint_no, deliver_plain.endpoint_nos)]],
    epoch = next_numbers[places[width_bucket(n.endpoint_no, deliver_plain.endpoint_nos)]] >> 7,
    sent_at = deliver_plain.sent_at[
      last_places[places[width_bucket(n.endpoint_no, deliver_plain.endpoint_nos)]]
    ]
  where n.ctid = any (counters);
  insert into broker_private.messages (
    group_no, endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, precedence,
    urgency, body
  )
  select
    group_nos[ranks[dialog_index[m.place]]],
    deliver_plain.endpoint_nos[ranks[dialog_index[m.place]]],
    deliver_plain.sequence_numbers[m.place], broker_private.clock(),
    queue_ids[ranks[dialog_index[m.place]]], type_ids[type_index[m.place]],
    precedences[ranks[dialog_index[m.place]]], 2, deliver_plain.bodies[m.place]
  from generate_series(1, cardinality(dialog_index)) as m (place);
  foreach queue in array queue_ids loop
    if queue is distinct from woken then
      woken := queue;
      if not pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), queue) then
        perform broker_private.wake_sleepers(queue);
      end if;
    end if;
  end loop;
  return next_numbers;
end
$$;
