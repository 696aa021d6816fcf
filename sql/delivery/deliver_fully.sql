-- hot path
-- Stores a batch that came from another broker.
--
-- Idempotent: what it has seen it drops by its number. Returns for each dialog of the batch the
-- number that it expects next, which acknowledges all before it. If a message could not be taken it
-- returns the fault: a final one is answered with an Error, any other is tried again.
--
-- Per dialog messages are taken in order up to the first that can't be. One that leaves a gap is
-- kept apart, unacknowledged, until what comes before it is here (hold_early, take_early). An Error
-- is taken with any number: the sender may have dropped what it sent before, and nothing comes
-- after it. Refused: a message from a broker that the dialog is not bound to (8495), or whose
-- security differs from the dialog's (9736). Security is L from the same worker, N clear, A
-- anonymous, F full. F comes with the user whose certificate signed, A with the key that is to be
-- kept. What arrives for a side that has ended, or that has refused a message, is acknowledged and
-- dropped. What a worker must look at, and what comes after it on its dialog, is stored as
-- incomplete. acknowledged: for each dialog, the number up to which its sender has an
-- acknowledgement. sent_at: of each message. By both a database is found that has gone back to an
-- earlier state (torn_dialogs); its dialogs end in an Error on both sides. Null: not looked at. An
-- Error's body that has not the one shape is made anew (arrived_error). A batch of kind P asks for
-- just that (ask): nothing of it is stored.
-- Locks: the counter of each dialog, in the order of their endpoints; no endpoint, no group: an
-- arrival waits for no reader.
-- Plan: endpoints by conversation and side; counters, contract messages by key; no scan.
create or replace function broker_private.deliver_fully(
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
set enable_bitmapscan = off
set enable_mergejoin = off
-- A join of the batch with itself is hashed.
set enable_hashjoin = on
as $$
declare
  dialogs constant integer := cardinality(conversation_ids);
  endpoint_nos bigint[];
  missing integer;
  first_numbers bigint[];
  letters text[];
  -- By their places.
  made integer[];
  unmade bigint[];
  is_doubtful boolean;
  is_behind boolean;
  confirmed bigint[];
  -- Each once.
  known bigint;
  unpinned integer[];
  answered bigint[];
  answer record;
  early record;
  has_gap boolean[];
  sleepers_queues integer[];
  problem text := broker_private.broker_problem();
begin
  if problem is not null then
    found := broker_private.refuse(28012, 'The broker of the target database is disabled.', problem);
  end if;
  fault_texts := array_fill(null::text, array[dialogs]);
  -- What is refused finds nothing to lie on, as 0 is no endpoint.
  select
    array_agg(case when d.refusal is null then d.endpoint_no else 0 end order by d.place), array_agg(-d.refusal order by d.place),
    array_agg(coalesce(d.refusal = 8495, false) order by d.place),
    array_agg(d.endpoint_no) filter (where d.is_initiator and not d.is_answered and d.refusal is null and not d.is_unpinned),
    array_agg(d.place) filter (where d.is_unpinned and d.refusal is null)
  into endpoint_nos, fault_codes, fault_is_final, answered, unpinned
  from broker_private.sides_of(
    from_broker, deliver_fully.conversation_ids, deliver_fully.from_initiator, deliver_fully.to_brokers, deliver_fully.security_kinds, deliver_fully.far_users, deliver_fully.session_keys
  ) d;
  foreach missing in array coalesce(unpinned, '{}') loop
    fault_codes[missing] := -broker_private.pin_dialog(
      endpoint_nos[missing], security_kinds[missing], far_users[missing], session_keys[missing]
    );
    if fault_codes[missing] is null then
      answered := answered || endpoint_nos[missing];
    else
      endpoint_nos[missing] := 0;
    end if;
  end loop;
  if array_remove(fault_codes, null) <> '{}' then
    fault_texts := array(
      select broker_private.fault_text(row(-x.code, x.to_broker)::broker_private.fault)
      from unnest(fault_codes, deliver_fully.to_brokers) with ordinality as x (code, to_broker, place)
      order by x.place
    );
  end if;
  -- The first to answer has the dialog, also if the acknowledgement of what it got was lost.
  if answered is not null then
    insert into broker_private.far_events (endpoint_no, event, far_broker_instance)
    select e.endpoint_no, '<broker known>', from_broker from broker_private.endpoints e where e.endpoint_no = any (answered) and e.is_initiator
    on conflict do nothing;
  end if;

  -- By one look at each message: a look at all of them for each new dialog would grow with the square.
  if array_position(endpoint_nos, null) is not null then
    first_numbers := array_fill(null::bigint, array[dialogs]);
    letters := string_to_array(kinds, null);
    for place in 1 .. cardinality(dialog_index) loop
      -- An end alone opens nothing: it is that of a dialog which is forgotten here.
      if sequence_numbers[place] = 0 or letters[place] = '<message>' then
        first_numbers[dialog_index[place]] := least(first_numbers[dialog_index[place]], sequence_numbers[place]);
      end if;
    end loop;
  end if;
  foreach missing in array coalesce(array_positions(endpoint_nos, null), '{}') loop
    select a.endpoint_no, a.fault_code, a.fault_text, a.is_final into answer
    from broker_private.open_dialog(
      from_broker, conversation_ids[missing], from_initiator[missing], from_services[missing], to_services[missing],
      to_brokers[missing], contracts[missing], expirations[missing], encrypted[missing], first_numbers[missing],
      security_kinds[missing], far_users[missing], session_keys[missing], acknowledged[missing]
    ) a;
    -- 0 is no endpoint: its messages find nothing to lie on.
    endpoint_nos[missing] := coalesce(answer.endpoint_no, 0);
    if answer.endpoint_no is not null then
      made := made || missing;
    end if;
    fault_codes[missing] := answer.fault_code;
    fault_texts[missing] := answer.fault_text;
    fault_is_final[missing] := coalesce(answer.is_final, false);
  end loop;

  -- What the sender knows to have arrived is what is expected here, unless an acknowledgement was lost.
  select
    bool_or(c.next_number <> d.acknowledged), bool_or(c.next_number < d.acknowledged),
    array_agg(d.endpoint_no) filter (where d.acknowledged > 0 and not c.is_confirmed),
    count(*)
  into is_doubtful, is_behind, confirmed, known
  from (
    select u.endpoint_no, max(u.acknowledged) as acknowledged
    from unnest(endpoint_nos, deliver_fully.acknowledged) as u (endpoint_no, acknowledged)
    group by u.endpoint_no
    order by u.endpoint_no
  ) d
  cross join lateral (
    select n.next_number, n.is_confirmed from broker_private.sequence_counters n
    where n.endpoint_no = d.endpoint_no and n.kind = '<next expected>'
    order by n.epoch desc
    limit 1
    for update
  ) c;
  -- A sender that says nothing has one batch of a dialog on its way, which begins behind what it has an acknowledgement of.
  if deliver_fully.acknowledged is null then
    select array_agg(b.endpoint_no) into confirmed
    from (
      select endpoint_nos[m.dialog] as endpoint_no
      from unnest(deliver_fully.dialog_index, deliver_fully.sequence_numbers) as m (dialog, number)
      group by 1
      having min(m.number) > 0
    ) b;
  end if;
  sent_at := coalesce(sent_at, array_fill(null::timestamp with time zone, array[cardinality(sequence_numbers)]));
  -- What repeats nothing can't tell that the sender's database has gone back.
  if (made is not null or unpinned is not null or answered is not null or deliver_fully.acknowledged is null)
    and is_behind is not true and known = dialogs and deliver_fully.kinds = repeat('<message>', cardinality(dialog_index))
    and array_remove(fault_codes, null) = '{}'
  then
    -- Now nothing of it may be odd any more.
    next_numbers := broker_private.deliver_plain(
      from_broker, conversation_ids, from_initiator, to_brokers, type_names, dialog_index, type_index,
      sequence_numbers, bodies, security_kinds, far_users, session_keys, deliver_fully.acknowledged, sent_at
    );
  end if;
  perform broker_private.confirm_dialogs(confirmed);
  if next_numbers is not null then
    return;
  end if;
  if is_doubtful then
    for answer in
      select t.place, t.own_code, t.far_code
      from broker_private.torn_dialogs(
        endpoint_nos, deliver_fully.acknowledged, deliver_fully.dialog_index, deliver_fully.sequence_numbers, deliver_fully.kinds, deliver_fully.sent_at
      ) t
    loop
      if broker_private.put_broker_error(
        endpoint_nos[answer.place], answer.own_code, broker_private.fault_text(row(answer.own_code, null)::broker_private.fault)
      ) then
        -- A side that has ended already hears nothing more, and its end has been dropped: it counts as acknowledged.
        insert into broker_private.far_events (endpoint_no, event)
        select e.endpoint_no, '<end acknowledged>' from broker_private.endpoints e where e.endpoint_no = endpoint_nos[answer.place] and e.local_end is not null
        on conflict do nothing;
      end if;
      endpoint_nos[answer.place] := 0;
      fault_codes[answer.place] := -answer.far_code;
      fault_texts[answer.place] := broker_private.fault_text(row(answer.far_code, null)::broker_private.fault);
      fault_is_final[answer.place] := true;
    end loop;
  end if;

  if deliver_fully.kinds not like 'P%' and exists (select from broker_private.early_messages h where h.endpoint_no = any (endpoint_nos) and h.is_whole) then
    early := broker_private.take_early(endpoint_nos, deliver_fully.dialog_index, deliver_fully.sequence_numbers, deliver_fully.kinds);
    dialog_index := dialog_index || early.early_dialogs;
    type_index := type_index || array(select cardinality(type_names) + n from generate_series(1, cardinality(early.early_types)) n);
    type_names := type_names || early.early_types;
    sequence_numbers := sequence_numbers || early.early_numbers;
    kinds := kinds || coalesce(early.early_kinds, '');
    bodies := bodies || early.early_bodies;
    sent_at := sent_at || early.early_sent_at;
  end if;

  with arrived as materialized (
    select
      endpoint_nos[m.dialog] as endpoint_no, m.dialog, m.number, m.place, m.sent_at,
      case m.kind when '<error>' then broker_private.arrived_error(m.body) else m.body end as body,
      deliver_fully.type_names[m.type_index] as type_name, m.kind
    from unnest(
      deliver_fully.dialog_index, deliver_fully.type_index, deliver_fully.sequence_numbers, deliver_fully.bodies, deliver_fully.sent_at, string_to_array(deliver_fully.kinds, null)
    ) with ordinality as m (dialog, type_index, number, body, sent_at, kind, place)
  ),
  sides as materialized (
    select
      d.endpoint_no, e.group_no, e.queue_id, e.is_initiator, e.contract_id, 10 - e.priority as precedence, c.location, c.next_number,
      q.is_enqueue_enabled,
      -- EXISTS may be planned as a hash of the whole table.
      e.local_end is null
        and (select true from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event in ('<far end>', '<far error>', '<refused here>') limit 1) is null as is_open,
      (select true from broker_private.incomplete_messages i where i.endpoint_no = e.endpoint_no limit 1) is not null as is_waiting
    from (select distinct u.endpoint_no from unnest(endpoint_nos) as u (endpoint_no)) d
    cross join lateral (
      select x.endpoint_no, x.group_no, x.queue_id, x.is_initiator, x.contract_id, x.priority, x.local_end
      from broker_private.endpoints x
      where x.endpoint_no = d.endpoint_no
      limit 1
    ) e
    join broker_private.queues q on q.queue_id = e.queue_id
    cross join lateral (
      select n.ctid as location, n.next_number from broker_private.sequence_counters n
      where n.endpoint_no = d.endpoint_no and n.kind = '<next expected>'
      order by n.epoch desc
      limit 1
    ) c
  ),
  expected as materialized (
    select
      a.endpoint_no, a.dialog, a.number, a.place, a.body, a.sent_at, a.kind, a.type_name, s.location, s.group_no, s.queue_id, s.precedence, s.is_open,
      s.is_waiting, k.validation, k.schema_collection_id,
      s.is_open and k.validation <> '<no validation>' as is_judged,
      case when s.is_open and k.validation <> '<no validation>' then broker_private.is_valid_body(k.validation, coalesce(a.body, '')) end as is_valid,
      case a.kind when '<message>' then k.message_type_id when '<end dialog>' then 2 when '<error>' then 1 end as message_type_id,
      case
        when not s.is_open then null
        when a.kind <> '<error>'
          and a.number <> s.next_number + row_number() over (partition by a.endpoint_no order by a.number, a.place) - 1 then 0
        when not s.is_enqueue_enabled then 9749
        when a.kind = '<error>' or a.kind = '<end dialog>' and a.body is null then null
        when a.kind <> '<message>' then 9615
        when k.message_type_id is null then 8498
        when s.is_initiator and not k.is_sent_by_target then 8457
        when not s.is_initiator and not k.is_sent_by_initiator then 8437
      end as other_fault
    from arrived a
    join sides s on s.endpoint_no = a.endpoint_no
    left join broker_private.contract_messages k on k.contract_id = s.contract_id and k.message_type_name = a.type_name and a.kind = '<message>'
    where (a.number >= s.next_number or a.kind = '<error>' and s.is_open) and a.kind <> '<question>'
  ),
  judged as materialized (
    select
      y.*, y.fault is null and y.kind <> '<error>' and bool_or(y.is_waiting or y.needs_check) over listed as is_incomplete,
      count(y.fault) over listed as faults_so_far,
      -- The place at which all before it on its dialog are there too. So what came in disorder is stored
      -- in the order of its numbers.
      max(y.place) over listed as turn
    from (
      select
        x.*, coalesce(x.other_fault, case when not x.is_valid then case x.validation when '<xml>' then 9615 else 8430 end end) as fault,
        coalesce(x.is_judged and (x.is_valid is null or x.schema_collection_id is not null), false) as needs_check
      from expected x
    ) y
    window listed as (partition by y.endpoint_no order by y.number, y.place rows unbounded preceding)
  ),
  stored as (
    insert into broker_private.messages (
      group_no, endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, precedence, urgency, body
    )
    select
      j.group_no, j.endpoint_no, j.number, broker_private.clock(), j.queue_id, j.message_type_id, j.precedence,
      case j.kind when '<error>' then 1 else 2 end, j.body
    from judged j
    where j.faults_so_far = 0 and j.is_open and not j.is_incomplete
    order by j.turn, j.number
    returning queue_id
  ),
  held as (
    insert into broker_private.incomplete_messages (
      endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, kind, is_first, is_checked, schema_collection_id, body
    )
    select
      j.endpoint_no, j.number, broker_private.clock(), j.queue_id, j.message_type_id, j.kind::"char", j.number = 0, not j.needs_check,
      j.schema_collection_id, j.body
    from judged j
    where j.faults_so_far = 0 and j.is_open and j.is_incomplete
    order by j.turn, j.number
    returning 1 as queue_id
  ),
  ended as (
    insert into broker_private.far_events (endpoint_no, event)
    select j.endpoint_no, j.kind::"char" from judged j where j.faults_so_far = 0 and j.is_open and not j.is_incomplete and j.kind in ('<end dialog>', '<error>')
    on conflict do nothing
  ),
  moved as (
    update broker_private.sequence_counters n
    set
      next_number = m.next_number, epoch = m.next_number >> 7, sent_at = m.sent_at
    from (
      select
        j.location, max(j.number) + 1 as next_number,
        (array_agg(j.sent_at order by j.number desc))[1] as sent_at
      from judged j
      where j.faults_so_far = 0
      group by j.location
    ) m
    where n.ctid = m.location and n.next_number < m.next_number
  ),
  -- Grouped once: a sub-select for each dialog would look through all messages for each.
  outcomes as materialized (
    select
      j.endpoint_no,
      max(j.number) filter (where j.faults_so_far = 0) + 1 as new_number,
      (
        array_agg(row(j.fault, j.type_name)::broker_private.fault order by j.number)
          filter (where j.fault is not null and j.faults_so_far = 1)
      )[1] as fault
    from judged j
    group by j.endpoint_no
  ),
  results as (
    select
      u.place as dialog, s.next_number as old_number, o.new_number, o.fault
    -- Thought to be a thousand rows, so that both joins are hashed.
    from generate_subscripts(endpoint_nos, 1) as u (place)
    left join sides s on s.endpoint_no = endpoint_nos[u.place]
    left join outcomes o on o.endpoint_no = endpoint_nos[u.place]
  )
  select
    array_agg(greatest(r.old_number, r.new_number, 0) order by r.dialog),
    array_agg(coalesce(fault_codes[r.dialog], -nullif((r.fault).code, 0)) order by r.dialog),
    array_agg(coalesce(fault_texts[r.dialog], broker_private.fault_text(r.fault)) order by r.dialog),
    array_agg(fault_is_final[r.dialog] or coalesce((r.fault).code not in (0, 9749), false) order by r.dialog),
    case when bool_or((r.fault).code = 0) then array_agg(coalesce((r.fault).code = 0, false) order by r.dialog) end,
    (
      select array_agg(q.queue_id)
      from (select s.queue_id from stored s union select h.queue_id from held h) q
      where not pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), q.queue_id)
    )
  into next_numbers, fault_codes, fault_texts, fault_is_final, has_gap, sleepers_queues
  from results r;
  if sleepers_queues is not null then
    perform broker_private.wake_sleepers(u.queue_id) from unnest(sleepers_queues) as u (queue_id);
  end if;
  if has_gap is not null then
    perform broker_private.hold_early(endpoint_nos, has_gap, dialog_index, type_names, type_index, sequence_numbers, kinds, bodies, sent_at);
  end if;

  -- A dialog that was made for a first message which could not be taken: nobody has seen it, and the message may come again.
  if made is not null then
    unmade := array(
      select endpoint_nos[u.place]
      from unnest(made) as u (place)
      where next_numbers[u.place] = 0
        and (select true from broker_private.early_messages h where h.endpoint_no = endpoint_nos[u.place] limit 1) is null
    );
    delete from broker_private.groups g
    using broker_private.endpoints e
    where e.endpoint_no = any (unmade) and g.group_no = e.group_no;
    delete from broker_private.sequence_counters n where n.endpoint_no = any (unmade);
    delete from broker_private.dialog_security d where d.endpoint_no = any (unmade);
    delete from broker_private.endpoints e where e.endpoint_no = any (unmade);
  end if;
end
$$;
