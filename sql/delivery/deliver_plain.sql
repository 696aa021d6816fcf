-- hot path
-- Stores a batch in which nothing is out of the ordinary.
--
-- It has deliver's arguments as far as it needs them, and all are messages. Returns the number that
-- each dialog expects next. Else it stores nothing and returns null, and the batch goes its long
-- way. That is so if the batch has anything but what its dialogs expect next, in order and without
-- a gap. It is so for dialogs of two contracts or of both sides. It is so where a side has ended,
-- its queue is off, or something of it waits for a worker. And it is so if the contract doesn't
-- know a type, doesn't allow it from there, or demands a look at the body. Messages have to come
-- from their dialog's broker and with its security.
--
-- A message passes through no join and no window here. What it needs of its dialog and of its type
-- is an element of an array. Group and queue may be of the time before the counters were free, as
-- an arrival locks none of them (sql/README.md, "What moves").
--
-- The counters are moved from where they should be, which locks them too. What another arrival
-- leaves is looked at afterwards. If there is anything odd they are put back, or what is stored
-- nowhere would count as stored.
-- Locks: the counter of each dialog, in the order of their endpoints; of none, where one would be
-- refused.
-- Plan: endpoints by conversation and side, and their counters, by key; the rest by an array of
-- keys.
-- Why: a statement costs 20,000 instructions or more to set up; a join 35,000, and 4,000 for each
-- dialog. To lock the counters first costs 15,000 for each dialog.
create or replace function broker_private.deliver_plain(
  from_broker uuid, conversation_ids uuid[], from_initiator boolean[], to_brokers uuid[], type_names text[],
  dialog_index integer[], type_index integer[], sequence_numbers bigint[], bodies bytea[], security_kinds text[],
  far_users text[], session_keys bytea[], acknowledged bigint[], sent_at timestamp with time zone[]
)
returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_mergejoin = off
set enable_hashjoin = off
as $$
declare
  dialogs constant integer := cardinality(conversation_ids);
  -- Of each dialog, in the order of the batch.
  first_numbers bigint[];
  next_numbers bigint[];
  last_sent timestamp with time zone[];
  endpoint_nos bigint[];
  counters tid[];
  group_nos bigint[];
  queue_ids integer[];
  precedences smallint[];
  -- Of all of them.
  guid uuid;
  contract integer;
  is_initiators boolean;
  is_right boolean;
  type_ids integer[];
  dialog integer;
  type_name text;
  type_id integer;
  queue integer;
  rows bigint;
  restored bigint;
begin
  for place in 1 .. cardinality(dialog_index) loop
    dialog := dialog_index[place];
    if next_numbers[dialog] is null then
      first_numbers[dialog] := sequence_numbers[place];
    elsif next_numbers[dialog] <> sequence_numbers[place] then
      return null;
    end if;
    next_numbers[dialog] := sequence_numbers[place] + 1;
    last_sent[dialog] := deliver_plain.sent_at[place];
  end loop;
  select
    (
      select b.service_broker_guid from broker_private.broker_instance b
      where b.is_the_only_row and broker_private.is_surely_on(b)
    ),
    array_agg(s.endpoint_no), array_agg(s.location), array_agg(s.group_no), array_agg(s.queue_id),
    array_agg(s.precedence), min(s.contract_id), bool_and(s.is_initiator),
    min(s.contract_id) = max(s.contract_id) and bool_and(s.is_initiator) = bool_or(s.is_initiator)
  into guid, endpoint_nos, counters, group_nos, queue_ids, precedences, contract, is_initiators, is_right
  from (
    select
      e.endpoint_no, e.group_no, e.queue_id, (10 - e.priority)::smallint as precedence,
      e.contract_id, e.is_initiator,
      (
        select n.ctid from broker_private.sequence_counters n
        where n.endpoint_no = e.endpoint_no and n.kind = '<next expected>'
          and n.epoch = first_numbers[d.place] >> 7 and n.next_number = first_numbers[d.place]
      ) as location
    from unnest(deliver_plain.conversation_ids) with ordinality as d (conversation_id, place)
    cross join lateral (
      select x.endpoint_no, x.group_no, x.queue_id, x.priority, x.contract_id, x.is_initiator
      from broker_private.endpoints x
      where x.conversation_id = d.conversation_id and x.is_initiator = not deliver_plain.from_initiator[d.place]
        and x.local_end is null
      limit 1
    ) e
    order by d.place
  ) s;
  -- The types are asked for one by one.
  if (
    is_right and cardinality(array_remove(counters, null)) = dialogs and cardinality(first_numbers) = dialogs and guid is not null
    and cardinality(dialog_index) = cardinality(bodies) and cardinality(type_names) <= 8
    and 0 < all (type_index) and cardinality(type_names) >= all (type_index)
  ) is not true
    or (guid = all (to_brokers)) is false
  then
    return null;
  end if;
  if is_initiators then
    perform from broker_private.far_events f
    where f.endpoint_no = any (endpoint_nos) and f.event = '<broker known>'
      and f.far_broker_instance = deliver_plain.from_broker;
    get diagnostics rows = row_count;
    if rows < dialogs then
      return null;
    end if;
  end if;
  if '<clear>' = all (security_kinds) then
    perform from broker_private.dialog_security y
    where y.endpoint_no = any (endpoint_nos) and y.kind = '<clear>';
    get diagnostics rows = row_count;
    if rows < dialogs then
      return null;
    end if;
  elsif ('<same worker>' = all (security_kinds)) is not true then
    perform from unnest(endpoint_nos) with ordinality as u (endpoint_no, place)
    cross join lateral (
      select x.endpoint_no, x.kind, x.far_user, x.session_key from broker_private.dialog_security x
      where x.endpoint_no = u.endpoint_no
      limit 1
    ) y
    where y.kind::text = deliver_plain.security_kinds[u.place]
      and case y.kind
        when '<clear>' then true
        when '<anonymous>' then
          is_initiators
          or substring(y.session_key, 1, 16) = substring(deliver_plain.session_keys[u.place], 1, 16)
        when '<full>' then
          deliver_plain.far_users[u.place] = broker_private.far_user_of(y.endpoint_no, y.far_user)
      end;
    get diagnostics rows = row_count;
    if rows < dialogs then
      return null;
    end if;
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
  if (cardinality(array_remove(type_ids, null)) = cardinality(type_names)) is not true then
    return null;
  end if;

  update broker_private.sequence_counters n
  set
    next_number = next_numbers[u.place], epoch = next_numbers[u.place] >> 7, sent_before = n.sent_at,
    sent_at = last_sent[u.place],
    is_confirmed = n.is_confirmed or coalesce(deliver_plain.acknowledged[u.place] > 0, false)
  from (
    select x.location, x.place
    from unnest(counters) with ordinality as x (location, place)
    order by endpoint_nos[x.place]
  ) u
  where n.ctid = u.location and n.next_number = first_numbers[u.place]
    and (first_numbers[u.place] < deliver_plain.acknowledged[u.place]) is not true;
  get diagnostics rows = row_count;
  perform where rows < dialogs
  union all
  select from broker_private.far_events f
  where f.endpoint_no = any (endpoint_nos) and f.event in ('<far end>', '<far error>', '<refused here>')
  union all
  select from broker_private.early_messages h where h.endpoint_no = any (endpoint_nos) and h.is_whole
  union all
  select from broker_private.incomplete_messages i where i.endpoint_no = any (endpoint_nos)
  union all
  select from broker_private.queues q where q.queue_id = any (queue_ids) and not q.is_enqueue_enabled
  limit 1;
  if found then
    update broker_private.sequence_counters n
    set
      next_number = first_numbers[array_position(endpoint_nos, n.endpoint_no)],
      epoch = first_numbers[array_position(endpoint_nos, n.endpoint_no)] >> 7, sent_at = n.sent_before
    where n.endpoint_no = any (endpoint_nos) and n.kind = '<next expected>' and n.xmin = pg_current_xact_id()::xid
      and n.next_number = next_numbers[array_position(endpoint_nos, n.endpoint_no)];
    get diagnostics restored = row_count;
    if restored <> rows then
      found := broker_private.refuse(
        28040, 'A batch was delivered twice in one transaction, or behind a savepoint.',
        'Deliver each batch in a transaction of its own.'
      );
    end if;
    return null;
  end if;
  insert into broker_private.messages (
    group_no, endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, precedence,
    urgency, body
  )
  select
    group_nos[dialog_index[m.place]], endpoint_nos[dialog_index[m.place]], deliver_plain.sequence_numbers[m.place],
    broker_private.clock(), queue_ids[dialog_index[m.place]], type_ids[type_index[m.place]],
    precedences[dialog_index[m.place]], 2, deliver_plain.bodies[m.place]
  from generate_series(1, cardinality(dialog_index)) as m (place);
  foreach queue in array case when queue_ids[1] = all (queue_ids) then queue_ids[1:1] else queue_ids end loop
    if not pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), queue) then
      perform broker_private.wake_sleepers(queue);
    end if;
  end loop;
  return next_numbers;
end
$$;
