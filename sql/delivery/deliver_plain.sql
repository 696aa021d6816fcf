-- hot path
-- broker_private.deliver_plain(endpoints, messages...): stores a batch in which nothing is out of the ordinary, and returns the number that each dialog expects next.
-- Else it stores nothing and returns null, and deliver goes its long way: if the batch has anything but what its dialogs expect next, in order and without a gap; if a side has
-- ended, its queue is off, or something of it waits for a worker; if a contract doesn't know a type, doesn't allow it from there, or demands a look at the body.
--
-- A message passes through no join and no window here: what it needs of its dialog and of its type is an element of an array.
-- Locks: called by deliver, which holds the dialogs' counters since an earlier statement, so what was committed before those were free is visible here.
-- Plan: endpoints, counters, contract messages by key, once for each dialog. A plain join or EXISTS may be planned as a hash of the whole table.
create or replace function broker_private.deliver_plain(
  endpoint_nos bigint[], type_names text[], dialog_index integer[], type_index integer[], sequence_numbers bigint[], bodies bytea[],
  sent_at timestamp with time zone[]
)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  type_ids integer[];
  is_plain boolean;
  group_nos bigint[];
  queue_ids integer[];
  precedences smallint[];
  locations tid[];
  next_numbers bigint[];
  last_places bigint[];
begin
  type_ids := array(
    select y.message_type_id
    from unnest(type_names) with ordinality as t (name, place)
    left join broker_private.message_types y on y.name = t.name
    order by t.place
  );
  -- The numbers are gathered as they come: out of order they are none of these.
  select
    count(distinct e.endpoint_no) = count(*) and sum(cardinality(l.numbers)) = cardinality(deliver_plain.bodies) and bool_and(coalesce(
      l.named_types = cardinality(l.numbers)
        and l.numbers = array(select generate_series(c.next_number, c.next_number + cardinality(l.numbers) - 1))
        and e.local_end is null and e.is_enqueue_enabled
        and (select true from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event in ('E', 'X', 'F') limit 1) is null
        and (select true from broker_private.early_messages h where h.endpoint_no = e.endpoint_no and h.is_whole limit 1) is null
        and (select true from broker_private.incomplete_messages i where i.endpoint_no = e.endpoint_no limit 1) is null
        and not exists (
          select
          from unnest(case when l.first_type = l.last_type then array[l.first_type] else array(select distinct unnest(l.types)) end) as x (type_index)
          where (type_ids[x.type_index] = (
            select k.message_type_id
            from broker_private.contract_messages k
            where k.contract_id = e.contract_id and k.message_type_name = deliver_plain.type_names[x.type_index] and k.validation = 'N'
              and case when e.is_initiator then k.is_sent_by_target else k.is_sent_by_initiator end
          )) is not true
        ),
      false
    )),
    array_agg(e.group_no order by d.place), array_agg(e.queue_id order by d.place),
    array_agg((10 - e.priority)::smallint order by d.place),
    array_agg(c.location order by d.place), array_agg(c.next_number + cardinality(l.numbers) order by d.place),
    array_agg(l.last_place order by d.place)
  into is_plain, group_nos, queue_ids, precedences, locations, next_numbers, last_places
  from unnest(deliver_plain.endpoint_nos) with ordinality as d (endpoint_no, place)
  left join (
    select
      m.dialog, array_agg(m.number) as numbers, max(m.place) as last_place, array_agg(m.type_index) as types, count(m.type_index) as named_types,
      min(m.type_index) as first_type, max(m.type_index) as last_type
    from unnest(deliver_plain.dialog_index, deliver_plain.type_index, deliver_plain.sequence_numbers)
      with ordinality as m (dialog, type_index, number, place)
    group by m.dialog
  ) l on l.dialog = d.place
  left join lateral (
    select x.endpoint_no, x.group_no, x.queue_id, x.priority, x.is_initiator, x.contract_id, x.local_end, q.is_enqueue_enabled
    from broker_private.endpoints x
    join broker_private.queues q on q.queue_id = x.queue_id
    where x.endpoint_no = d.endpoint_no
    limit 1
  ) e on true
  left join lateral (
    select n.ctid as location, n.next_number from broker_private.sequence_counters n
    where n.endpoint_no = e.endpoint_no and n.kind = 'I'
    order by n.epoch desc
    limit 1
  ) c on true;
  if is_plain is not true then
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
    group_nos[m.dialog], deliver_plain.endpoint_nos[m.dialog], m.number, broker_private.clock(), queue_ids[m.dialog], type_ids[m.type_index],
    precedences[m.dialog], 2, m.body
  from unnest(deliver_plain.dialog_index, deliver_plain.type_index, deliver_plain.sequence_numbers, deliver_plain.bodies)
    with ordinality as m (dialog, type_index, number, body, place)
  order by m.place;
  perform broker_private.wake_sleepers(q.queue_id)
  from (select distinct u.queue_id from unnest(queue_ids) as u (queue_id)) q
  where not pg_try_advisory_xact_lock_shared(1886937714, q.queue_id);
  return next_numbers;
end
$$;
