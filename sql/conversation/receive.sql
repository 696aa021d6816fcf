-- hot path
-- broker.receive(queue, top, conversation_handle, conversation_group_id, timeout): RECEIVE, and WAITFOR (RECEIVE) with a timeout.
--
-- LIMIT and WHERE outside the call filter what is already consumed: say top => n, conversation_handle => or conversation_group_id =>
-- inside it.
--
-- Returns messages of one conversation group only: without a handle or a group, of the group that pick_group locks, skipping groups
-- that others hold; with one, of that conversation or group, waiting for whoever holds it. Rows are ordered by conversation,
-- those of higher priority first; within one by sequence, but a DialogTimer first and an Error second.
-- timeout: how long to wait for a message; NULL for ever; above 0 in READ COMMITTED only. While it waits the calling statement
-- keeps its snapshot, which holds back vacuum like any long statement; pybroker's client waits without one.
--
-- The counterpart runs with the owner's rights and returns an array, not a set: called in a statement it could not be sure who calls
-- it (see assert_entry). It returns at most 1000 rows or 64 MB a call and marks the last row if there is more, so that no group is
-- too large for an array.
--
-- A message within this database gets its number here: the endpoint's counter and its place. One that came from another broker brought it along.
-- What lies on an endpoint that has ended is removed: its sender saw it open, and committed after the end.
-- A transaction that received leaves a mark, so that its rollback can be counted (see note_receive, and note_conversations for a queue that
-- quarantines; what quarantined conversations are, set_aside says).
-- One message has statements of its own (receive_one): starting the large one costs more than the message.
-- Locks: the group's row.
-- Plan: pick_group's; then messages_group for one group; then each name by its key.
-- Errors: 208 queue, 9617 queue disabled, 8426 handle, 8436 group, 153 arguments, 229.
create or replace function broker.receive(
  queue text,
  top integer default null,
  conversation_handle uuid default null,
  conversation_group_id uuid default null,
  timeout interval default '0'
)
returns setof broker.message
language plpgsql
rows 100
set search_path = pg_catalog, pg_temp
as $$
declare
  received broker.message[];
  wanted bigint := top;
  deadline timestamp with time zone;
  pause double precision := 0.002;
begin
  received := broker_private.receive(current_user, queue, wanted, conversation_handle, conversation_group_id, timeout);
  if received = '{}' and wanted is distinct from 0 and timeout is distinct from interval '0' then
    deadline := broker_private.clock() + timeout;
    while received = '{}' and (deadline is null or broker_private.clock() < deadline) loop
      perform pg_sleep(pause);
      pause := least(pause * 1.5, 0.02);
      received := broker_private.receive(current_user, queue, wanted, conversation_handle, conversation_group_id, interval '0');
    end loop;
  end if;
  while received <> '{}' loop
    -- Starting a query costs more than a message.
    if cardinality(received) = 1 and (received[1]).status = 0 then
      return next received[1];
      exit;
    end if;
    return query
    select
      0::smallint, r.priority, r.queuing_order, r.conversation_group_id, r.conversation_handle, r.message_sequence_number,
      r.service_name, r.service_id, r.service_contract_name, r.service_contract_id, r.message_type_name, r.message_type_id,
      r.validation, r.message_body, r.message_id, r.message_enqueue_time
    from unnest(received) r;
    exit when (received[cardinality(received)]).status = 0;
    wanted := wanted - cardinality(received);
    if conversation_handle is null then
      conversation_group_id := (received[1]).conversation_group_id;
    end if;
    received := broker_private.receive(current_user, queue, wanted, conversation_handle, conversation_group_id, interval '0');
  end loop;
end
$$;

create or replace function broker_private.receive(
  caller name, queue_name text, wanted bigint, handle uuid, group_id uuid, timeout interval
)
returns broker.message[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  queue integer;
  retains boolean;
  receive_marks regclass;
  group_number bigint;
  has_moved boolean;
  endpoint bigint;
  locations tid[];
  is_cut boolean;
  total_size bigint;
  received broker.message[];
  holds_quarantine boolean;
  marks regclass[];
  mark bigint;
begin
  -- Called by whom the session runs as, there is nothing to ask (see broker_private.assert_entry).
  if caller is distinct from session_user or current_setting('role') not in ('none', caller) then
    perform broker_private.assert_entry(caller);
  end if;

  select
    q.queue_id, q.is_retention_enabled, q.holds_quarantine, q.receive_marks,
    case when q.is_poison_message_handling_enabled and q.poison_action = 'DISABLE_QUEUE' then q.marks end
  into queue, retains, holds_quarantine, receive_marks, marks
  from broker_private.queues q
  where q.name = queue_name and q.is_receive_enabled
    and (
      q.owner = caller
      or pg_has_role(caller, 'pg_database_owner', 'USAGE')
      or broker_private.is_permitted(caller, 'RECEIVE', 'Q', q.queue_id, q.owner)
    );
  if queue is null or wanted <= 0 or timeout is distinct from interval '0' or handle is not null and group_id is not null then
    perform broker_private.check_receive(caller, queue_name, wanted, handle, group_id, timeout);
  end if;
  if wanted = 0 then
    return '{}';
  end if;

  loop
    if handle is null and group_id is null then
      -- As broker_private.pick_group does; here it saves the call.
      select c.group_no, g.has_moved into group_number, has_moved
      from (
        select m.group_no from broker_private.messages m
        where m.queue_id = queue
        order by m.precedence, m.id
        limit 16
      ) c
      join broker_private.groups g on g.group_no = c.group_no
      limit 1
      for update of g skip locked;
      if group_number is null or has_moved then
        group_number := broker_private.walk_to_group(queue, '{}', group_number is not null);
        exit when group_number is null;
        select g.has_moved into has_moved from broker_private.groups g where g.group_no = group_number;
      end if;
    else
      select l.group_no, l.endpoint_no, l.has_moved into group_number, endpoint, has_moved
      from broker_private.lock_named_group(queue, handle, group_id) l;
    end if;

    if holds_quarantine then
      wanted := broker_private.set_aside(queue, group_number, wanted);
      exit when wanted = 0;
    end if;
    if wanted = 1 and not has_moved then
      received := broker_private.receive_one(group_number, endpoint);
      exit when received is not null or handle is not null or group_id is not null;
      continue;
    end if;
    loop
      select array_agg(m.location), count(*) = 1000 and wanted is distinct from 1000, sum(m.size)
      into locations, is_cut, total_size
      from (
        select m.ctid as location, coalesce(octet_length(m.body), m.shared_size, 0) as size
        from broker_private.messages m
        where m.group_no = group_number and (endpoint is null or m.endpoint_no = endpoint)
          and (not has_moved or exists (
            select from broker_private.endpoints e where e.endpoint_no = m.endpoint_no and e.group_no = m.group_no
          ))
        order by m.precedence, m.endpoint_no, m.urgency, m.id
        limit least(wanted, 1000)
      ) m;
      if total_size > 64 * 1024 * 1024 then
        select array_agg(c.location order by c.place), count(*) < max(c.candidates) or max(c.candidates) = 1000 and wanted is distinct from 1000
        into locations, is_cut
        from (
          select
            m.location,
            row_number() over listed as place,
            count(*) over () as candidates,
            sum(m.size) over listed as total
          from (
            select m.ctid as location, coalesce(octet_length(m.body), m.shared_size, 0) as size, m.precedence, m.endpoint_no, m.urgency, m.id
            from broker_private.messages m
            where m.group_no = group_number and (endpoint is null or m.endpoint_no = endpoint)
              and (not has_moved or exists (
                select from broker_private.endpoints e where e.endpoint_no = m.endpoint_no and e.group_no = m.group_no
              ))
            order by m.precedence, m.endpoint_no, m.urgency, m.id
            limit least(wanted, 1000)
          ) m
          window listed as (order by m.precedence, m.endpoint_no, m.urgency, m.id)
        ) c
        where c.place = 1 or c.total <= 64 * 1024 * 1024;
      end if;
      -- What it gathers came before what was found here, or together with it.
      exit when not has_moved or broker_private.gather_moved(group_number) = 0;
      if holds_quarantine then
        wanted := broker_private.set_aside(queue, group_number, wanted);
      end if;
    end loop;
    exit when locations is null and (handle is not null or group_id is not null);

    with taken as materialized (
      delete from broker_private.messages m
      where m.ctid = any (locations)
      returning
        m.id, m.group_no, m.endpoint_no, m.sequence_number, m.enqueue_time, m.message_type_id, m.precedence, m.urgency, m.body,
        m.shared_body_no
    ),
    numbered as (
      update broker_private.sequence_counters s
      set next_number = s.next_number + k.taken, epoch = (s.next_number + k.taken) >> 7
      from (
        select
          t.endpoint_no,
          count(*) as taken,
          (
            select n.ctid from broker_private.sequence_counters n
            where n.endpoint_no = t.endpoint_no and n.kind = 'R'
            order by n.epoch desc
            limit 1
          ) as location
        from taken t
        where t.sequence_number is null and t.urgency = 2
        group by t.endpoint_no
      ) k
      where s.ctid = k.location
      returning s.endpoint_no, s.next_number - k.taken as first_number
    ),
    complete as (
      select
        t.id, t.endpoint_no, t.enqueue_time, t.message_type_id, t.precedence, t.urgency, t.body, t.shared_body_no,
        coalesce(
          t.sequence_number,
          case when t.urgency = 2
            then n.first_number + row_number() over (partition by t.endpoint_no, t.urgency order by t.id) - 1
            else broker_private.number_of_error(t.endpoint_no)
          end
        ) as sequence_number
      from taken t
      left join numbered n on n.endpoint_no = t.endpoint_no
    )
    select array_agg(
      row(
        is_cut::integer, 10 - c.precedence, c.id, g.conversation_group_id, e.conversation_handle, c.sequence_number, s.name, s.service_id,
        k.name, k.contract_id, y.name, y.message_type_id, y.validation,
        case when c.shared_body_no is null then c.body else broker_private.shared_body(c.shared_body_no) end,
        broker_private.message_id(e.conversation_id, not e.is_initiator, c.urgency, case c.urgency when 2 then c.sequence_number else c.id end),
        c.enqueue_time
      )::broker.message
      order by c.precedence, c.endpoint_no, c.urgency, c.id
    ) into received
    from complete c
    -- Each side of LIMIT 1 is one probe of an index, whatever the planner believes of the tables' sizes.
    cross join lateral (
      select x.conversation_handle, x.conversation_id, x.is_initiator, x.group_no, x.service_id, x.contract_id
      from broker_private.endpoints x
      where x.endpoint_no = c.endpoint_no and x.local_end is null
      limit 1
    ) e
    cross join lateral (select x.conversation_group_id from broker_private.groups x where x.group_no = e.group_no limit 1) g
    cross join lateral (select x.service_id, coalesce(x.name, x.dropped_name) as name from broker_private.services x where x.service_id = e.service_id limit 1) s
    cross join lateral (select x.contract_id, coalesce(x.name, x.dropped_name) as name from broker_private.contracts x where x.contract_id = e.contract_id limit 1) k
    cross join lateral (
      select x.message_type_id, x.name, x.validation
      from broker_private.message_types x
      where x.message_type_id = c.message_type_id
      limit 1
    ) y;
    exit when received is not null;
  end loop;
  if retains and received is not null then
    perform broker_private.retain_received(received);
  end if;
  if received is not null and holds_quarantine then
    perform broker_private.note_conversations(queue, received);
  end if;
  if received is not null and marks is not null then
    -- As broker_private.note_receive does, for the plain case: the last transaction that received from the queue has committed.
    mark := pg_sequence_last_value(marks[1]);
    if mark & 15 = 0 and mark >> 4 < txid_current() and txid_status(mark >> 4) = 'committed' then
      mark := setval(marks[1], txid_current() << 4);
    elsif mark >> 4 is distinct from txid_current() then
      perform broker_private.note_receive(queue_name, marks);
    end if;
  end if;
  if receive_marks is not null then
    mark := case
      when received is null and handle is null and group_id is null then broker_private.mark_empty_receive(receive_marks)
      else nextval(receive_marks)
    end;
  end if;
  return coalesce(received, '{}');
end
$$;
