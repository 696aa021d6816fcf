-- hot path
-- broker_private.deliver_plain(endpoints, messages...): stores a batch in which nothing is out of
-- the ordinary, and returns the number that each dialog expects next. Else it stores nothing and
-- returns null, and deliver goes its long way: if the batch has anything but what its dialogs
-- expect next, in order and without a gap; if a side has ended, its queue is off, or something of
-- it waits for a worker; if a contract doesn't know a type, doesn't allow it from there, or demands
-- a look at the body.
--
-- A message passes through no join and no window here: what it needs of its dialog and of its type
-- is an element of an array.
-- Locks: called by deliver, which holds the dialogs' counters since an earlier statement, so what
-- was committed before those were free is visible here.
-- Plan: endpoints, counters, contract messages by key, once for each dialog. A plain join or EXISTS
-- may be planned as a hash of the whole table.
create or replace function broker_private.deliver_plain(
  endpoint_nos bigint[], type_names text[], dialog_index integer[], type_index integer[], sequence_numbers bigint[], bodies bytea[],
  sent_at timestamp with time zone[]
)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
as $$
declare
  is_plain boolean;
  group_nos bigint[];
  queue_ids integer[];
  precedences smallint[];
  -- By dialog and type.
  type_ids integer[];
  message_types integer[];
  locations tid[];
  next_numbers bigint[];
  last_places bigint[];
  dialog integer;
  queue integer;
begin
  -- Every dialog is asked for every type.
  if cardinality(type_names) > 8 then
    return null;
  end if;
  select
    array_agg(e.endpoint_no) = deliver_plain.endpoint_nos and bool_and(
      e.local_end is null and q.is_enqueue_enabled
        and (select true from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event in ('E', 'X', 'F') limit 1) is null
        and (select true from broker_private.early_messages h where h.endpoint_no = e.endpoint_no and h.is_whole limit 1) is null
        and (select true from broker_private.incomplete_messages i where i.endpoint_no = e.endpoint_no limit 1) is null
    ),
    array_agg(e.group_no), array_agg(e.queue_id), array_agg((10 - e.priority)::smallint),
    array_agg(c.location), array_agg(c.next_number),
    array_agg(array(
      select (
        select k.message_type_id
        from broker_private.contract_messages k
        where k.contract_id = e.contract_id and k.message_type_name = t.name and k.validation = 'N'
          and case when e.is_initiator then k.is_sent_by_target else k.is_sent_by_initiator end
      )
      from unnest(deliver_plain.type_names) as t (name)
    ))
  into is_plain, group_nos, queue_ids, precedences, locations, next_numbers, type_ids
  from unnest(deliver_plain.endpoint_nos) as d (endpoint_no)
  join broker_private.endpoints e on e.endpoint_no = d.endpoint_no
  join broker_private.queues q on q.queue_id = e.queue_id
  cross join lateral (
    select n.ctid as location, n.next_number from broker_private.sequence_counters n
    where n.endpoint_no = e.endpoint_no and n.kind = 'I'
    order by n.epoch desc
    limit 1
  ) c;
  if is_plain is not true or cardinality(dialog_index) <> cardinality(bodies)
    or cardinality(deliver_plain.endpoint_nos) > 1 and cardinality(deliver_plain.endpoint_nos) <> (
      select count(distinct u.endpoint_no) from unnest(deliver_plain.endpoint_nos) as u (endpoint_no)
    )
  then
    return null;
  end if;
  for place in 1 .. cardinality(dialog_index) loop
    dialog := dialog_index[place];
    message_types[place] := type_ids[dialog][type_index[place]];
    if (sequence_numbers[place] = next_numbers[dialog] and message_types[place] > 0) is not true then
      return null;
    end if;
    next_numbers[dialog] := next_numbers[dialog] + 1;
    last_places[dialog] := place;
  end loop;
  if cardinality(last_places) <> cardinality(locations) or array_position(last_places, null) is not null then
    return null;
  end if;

  with moved as (
    update broker_private.sequence_counters n
    set
      next_number = u.next_number, epoch = u.next_number >> 7,
      sent_at = deliver_plain.sent_at[u.last_place]
    from unnest(locations, next_numbers, last_places) as u (location, next_number, last_place)
    where n.ctid = u.location
  )
  insert into broker_private.messages (
    group_no, endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, precedence, urgency, body
  )
  select
    group_nos[m.dialog], deliver_plain.endpoint_nos[m.dialog], m.number, broker_private.clock(), queue_ids[m.dialog], m.message_type_id,
    precedences[m.dialog], 2, m.body
  from unnest(deliver_plain.dialog_index, message_types, deliver_plain.sequence_numbers, deliver_plain.bodies)
    as m (dialog, message_type_id, number, body);
  foreach dialog in array queue_ids loop
    if dialog is distinct from queue then
      queue := dialog;
      if not pg_try_advisory_xact_lock_shared(1886937714, queue) then
        perform broker_private.wake_sleepers(queue);
      end if;
    end if;
  end loop;
  return next_numbers;
end
$$;
