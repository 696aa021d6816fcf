-- hot path
-- RECEIVE, and WAITFOR (RECEIVE) with a timeout.
--
-- LIMIT and WHERE outside the call filter what is already consumed: say top => n,
-- conversation_handle => or conversation_group_id => inside it.
--
-- Returns messages of one conversation group only. Without a handle or a group it takes the one
-- that lock_next_group locks, and skips groups that others hold. With one, it takes that
-- conversation or group, and waits for its holder. Rows are ordered by conversation, those of
-- higher priority first; within one by sequence, but a DialogTimer first and an Error second.
-- timeout: how long to wait for a message; NULL for ever; above 0 in READ COMMITTED only. While it
-- waits the calling statement keeps its snapshot, which holds back vacuum like any long statement;
-- pybroker's client waits without one. Who waits by handle or group holds no lock of its own while
-- there is nothing (lock_named_message).
--
-- The counterpart runs with the owner's rights. It returns an array, not a set: called in a
-- statement it could not be sure of its caller (see is_seen). NULL means that there is nothing,
-- '{}' that the public function has to vouch. It returns at most 1000 rows or 64 MB a call, so that
-- no group is too large for an array. It marks the last row if there is more.
--
-- A message within this database gets its number here: the endpoint's counter and its place. One
-- that came from another broker brought it along. What lies on an endpoint that has ended is
-- removed: its sender saw it open, and committed after the end. A transaction that received leaves
-- a mark, so that its rollback can be counted (see note_receive, and note_conversations for a queue
-- that quarantines). What quarantined conversations are, set_aside says. One message has statements
-- of its own, each on one table and with few operators. Setting up a join, or an operator, costs
-- more than reading a row. What it returns of conversation and type it learns by the lock on the
-- group's row, if a plan is there (make_receive_plan). More messages are receive_many's.
-- Locks: the group's row.
-- Plan: lock_next_group's; then messages_group, one row; then the counter, and without a plan
-- endpoint and message type, by key.
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
  pause double precision;
  is_called boolean;
begin
  loop
    -- By its timeout the counterpart knows a RECEIVE that waits.
    received := broker_private.receive(current_user, queue, wanted, conversation_handle, conversation_group_id, timeout);
    if cardinality(received) = 1 and (received[1]).status = 0 then
      return next received[1];
      return;
    elsif received = '{}' then
      is_called := broker_private.vouch(current_user);
    elsif received is null then
      exit when timeout = interval '0' or wanted = 0 or broker_private.clock() >= deadline;
      deadline := coalesce(deadline, broker_private.clock() + timeout);
      pause := least(coalesce(pause * 1.5, 0.002), 0.02);
      perform pg_sleep(pause);
    elsif (received[cardinality(received)]).status = 0 then
      return query select * from unnest(received);
      return;
    else
      return query
      select
        0::smallint, r.priority, r.queuing_order, r.conversation_group_id, r.conversation_handle, r.message_sequence_number,
        r.service_name, r.service_id, r.service_contract_name, r.service_contract_id, r.message_type_name, r.message_type_id,
        r.validation, r.message_body, r.message_id, r.message_enqueue_time
      from unnest(received) r;
      wanted := wanted - cardinality(received);
      if conversation_handle is null then
        conversation_group_id := (received[1]).conversation_group_id;
      end if;
      timeout := interval '0';
    end if;
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
as $$
declare
  stack text;
  queue integer;
  retains boolean;
  holds_quarantine boolean;
  is_plain boolean;
  uses_floors boolean;
  takes_oldest boolean;
  receive_marks regclass;
  first_mark regclass;
  second_mark regclass;
  is_named boolean := false;
  picked broker_private.picked_group;
  plan broker_private.receive_plan;
  missed_group bigint;
  received broker.message[];
  message broker.message;
  of_endpoint bigint;
  type_id integer;
  message_urgency smallint;
  shared_no bigint;
  location tid;
  is_planned boolean := true;
  mark bigint;
begin
  get diagnostics stack = pg_context;
  -- is_entry where messages are in English, by two comparisons. A check keeps the line's number true.
  if (
    stack collate "C" >= E'PL/pgSQL function broker_private.receive(name,text,bigint,uuid,uuid,interval) line 27 at GET DIAGNOSTICS\nPL/pgSQL function broker.'
    and stack collate "C" < E'PL/pgSQL function broker_private.receive(name,text,bigint,uuid,uuid,interval) line 27 at GET DIAGNOSTICS\nPL/pgSQL function broker/'
  ) is not true
  then
    if not broker_private.is_seen(stack, caller) then
      return '{}';
    end if;
  end if;

  select
    q.queue_id, q.is_retention_enabled, q.holds_quarantine, q.receive_marks, q.first_mark, q.second_mark,
    -- Now and then, more often where it takes many, it searches as if there were floors, to find out
    -- whether they are needed: null. Not after it may have deleted messages itself: these would count.
    case
      when q.has_floors then false
      when random() >= case when wanted = 1 then 0.005 else 0.05 end or pg_current_xact_id_if_assigned() is not null then true
    end
  into queue, retains, holds_quarantine, receive_marks, first_mark, second_mark, is_plain
  from broker_private.queues q
  where q.name = queue_name and q.is_receive_enabled
    and (
      pg_has_role(caller, q.owner, 'USAGE')
      or pg_has_role(caller, 'pg_database_owner', 'USAGE')
      or broker_private.is_permitted(caller, 'RECEIVE', '<queue>', q.queue_id, q.owner)
    );
  if queue is null or wanted <= 0 or handle is not null or group_id is not null or timeout is distinct from interval '0' then
    perform broker_private.check_receive(caller, queue_name, wanted, handle, group_id, timeout);
    if wanted = 0 then
      return null;
    end if;
    is_named := handle is not null or group_id is not null;
    uses_floors := is_plain is not true;
    is_plain := is_plain and not is_named;
  end if;

  loop
    if is_plain then
      -- As broker_private.lock_next_group does; here it saves the call.
      select
        c.group_no, g.has_moved,
        case when g.receive_made > pg_sequence_last_value('broker_private.plan_mark') then g.receive_plan end
      into picked.group_no, picked.has_moved, picked.plan
      from (
        select m.group_no from broker_private.messages m
        where m.queue_id = queue
        order by m.precedence, m.id
        limit 16
      ) c
      cross join lateral (
        select x.has_moved, x.receive_made, x.receive_plan from broker_private.groups x where x.group_no = c.group_no for update skip locked
      ) g
      limit 1;
    elsif not is_named then
      uses_floors := true;
      picked := broker_private.pick_above_floors(queue, is_plain is null);
      takes_oldest := picked.is_deep is not true;
    else
      exit when timeout is distinct from interval '0' and not broker_private.lock_named_message(queue, handle, group_id);
      picked := broker_private.lock_named_group(queue, handle, group_id);
      takes_oldest := picked.endpoint_no is null and not uses_floors;
    end if;
    if picked.group_no is null or picked.has_moved or holds_quarantine or wanted is distinct from 1 then
      if not is_named and (picked.group_no is null or picked.has_moved) then
        picked.group_no := (broker_private.walk_to_group(queue, null, picked.group_no is not null, coalesce(uses_floors, false)))[12];
        exit when picked.group_no is null;
        select
          g.has_moved,
          case when g.receive_made > pg_sequence_last_value('broker_private.plan_mark') then g.receive_plan end
        into picked.has_moved, picked.plan
        from broker_private.groups g
        where g.group_no = picked.group_no;
      end if;
      if holds_quarantine then
        wanted := broker_private.set_aside(queue, picked.group_no, wanted);
        exit when wanted = 0;
      end if;
      if wanted is distinct from 1 or picked.has_moved then
        received := broker_private.receive_many(
          queue, picked.group_no, picked.endpoint_no, wanted, picked.has_moved, holds_quarantine, coalesce(uses_floors and not takes_oldest, false)
        );
        exit when received is not null or is_named;
        -- Another session was quicker; or, if it is met again, it lies on a conversation that is gone.
        if picked.group_no = missed_group then
          is_plain := true;
          uses_floors := false;
        end if;
        missed_group := picked.group_no;
        continue;
      end if;
    end if;

    plan := picked.plan;
    message := plan.message;
    if is_plain or takes_oldest then
      delete from broker_private.messages m
      where m.ctid = (
        select c.ctid from broker_private.messages c
        where c.group_no = picked.group_no
        order by c.precedence, c.endpoint_no, c.urgency, c.id
        limit 1
      )
      returning
        m.id, m.endpoint_no, m.sequence_number, m.enqueue_time, m.message_type_id, m.urgency, m.body, m.shared_body_no
      into
        message.queuing_order, of_endpoint, message.message_sequence_number, message.message_enqueue_time, type_id, message_urgency,
        message.message_body, shared_no;
    else
      -- A statement of its own: the function may see what was committed later than a DELETE that calls it would see.
      if uses_floors then
        select l.location into location from broker_private.messages_above_floors(queue, picked.group_no, picked.endpoint_no, 1) l;
      else
        select c.ctid into location
        from broker_private.messages c
        where c.group_no = picked.group_no and c.endpoint_no = picked.endpoint_no
        order by c.precedence, c.endpoint_no, c.urgency, c.id
        limit 1;
      end if;
      delete from broker_private.messages m
      where m.ctid = location
      returning
        m.id, m.endpoint_no, m.sequence_number, m.enqueue_time, m.message_type_id, m.urgency, m.body, m.shared_body_no
      into
        message.queuing_order, of_endpoint, message.message_sequence_number, message.message_enqueue_time, type_id, message_urgency,
        message.message_body, shared_no;
    end if;
    if (plan.endpoint_no = of_endpoint and message.message_type_id = type_id and message_urgency = 2 and shared_no is null) is not true then
      -- Without a message, as another session was quicker, and without a plan both are null.
      if of_endpoint is null or plan.endpoint_no is distinct from of_endpoint then
        select
          0::smallint, e.priority, e.conversation_group_id, e.conversation_handle, e.service_name, e.service_id,
          e.contract_name, e.contract_id, y.name, y.message_type_id, y.validation::text,
          left(e.conversation_id::text, 18), case when e.is_initiator then 2::bigint << 60 else 6::bigint << 60 end
        into
          message.status, message.priority, message.conversation_group_id, message.conversation_handle, message.service_name,
          message.service_id, message.service_contract_name, message.service_contract_id, message.message_type_name,
          message.message_type_id, message.validation, plan.id_prefix, plan.id_base
        from broker_private.endpoints e
        left join broker_private.message_types y on y.message_type_id = type_id
        where e.endpoint_no = of_endpoint and e.local_end is null;
        if not found then
          -- It lay on an endpoint that has ended, and is removed now; or there was none.
          exit when is_named and of_endpoint is null;
          if picked.group_no = missed_group and not is_named then
            is_plain := true;
            uses_floors := false;
          end if;
          missed_group := picked.group_no;
          continue;
        end if;
      elsif message.message_type_id is distinct from type_id then
        select y.name, y.message_type_id, y.validation::text
        into message.message_type_name, message.message_type_id, message.validation
        from broker_private.message_types y
        where y.message_type_id = type_id;
      end if;
      if message_urgency < 2 then
        select
          coalesce(message.message_sequence_number, broker_private.number_of_error(of_endpoint)),
          broker_private.message_id(e.conversation_id, not e.is_initiator, message_urgency, message.queuing_order)
        into message.message_sequence_number, message.message_id
        from broker_private.endpoints e
        where e.endpoint_no = of_endpoint;
      end if;
      if shared_no is not null then
        message.message_body := broker_private.shared_body(shared_no);
      end if;
      is_planned := plan.endpoint_no is not null;
    end if;
    if message.message_sequence_number is null and (is_plain or takes_oldest) then
      -- A search from the group's beginning is short, so few versions of the counter are left: each came with a message.
      update broker_private.sequence_counters n
      set next_number = n.next_number + 1, epoch = (n.next_number + 1) >> 7, padding = null
      where n.endpoint_no = of_endpoint and n.kind = '<next received>'
      returning n.next_number - 1 into message.message_sequence_number;
    elsif message.message_sequence_number is null then
      update broker_private.sequence_counters n
      set next_number = n.next_number + 1, epoch = (n.next_number + 1) >> 7, padding = null
      where n.ctid = (
        select c.ctid from broker_private.sequence_counters c
        where c.endpoint_no = of_endpoint and c.kind = '<next received>'
        order by c.epoch desc
        limit 1
      )
      returning n.next_number - 1 into message.message_sequence_number;
    end if;
    -- As broker_private.message_id does.
    message.message_id := coalesce(message.message_id, (plan.id_prefix || to_hex(message.message_sequence_number + plan.id_base))::uuid);
    -- Not for a conversation's first message, which often is the only one; and not each time, where there can't be one.
    if not is_planned and message_urgency = 2 and message.message_sequence_number & 15 = 1 then
      perform broker_private.make_receive_plan(of_endpoint, type_id);
    end if;
    received := array[message];
    exit;
  end loop;

  if first_mark is not null and received is not null then
    -- As broker_private.note_receive does, for the plain case: the last transaction that received from the queue has committed.
    mark := pg_sequence_last_value(first_mark);
    if (case
      when mark & 15 = 0 and mark >> 4 < txid_current() and txid_status(mark >> 4) = 'committed'
        then setval(first_mark, txid_current() << 4) is null
      else mark >> 4 is distinct from txid_current()
    end) then
      perform broker_private.note_receive(queue_name, first_mark, second_mark);
    end if;
  end if;
  if retains or holds_quarantine or receive_marks is not null then
    if retains and received is not null then
      perform broker_private.retain_received(received);
    end if;
    if holds_quarantine and received is not null then
      perform broker_private.note_conversations(queue, received);
    end if;
    if receive_marks is not null then
      mark := case
        when received is null and not is_named then broker_private.mark_empty_receive(receive_marks)
        else nextval(receive_marks)
      end;
    end if;
  end if;
  return received;
end
$$;

comment on function broker.receive(text, integer, uuid, uuid, interval) is
$$RECEIVE, and WAITFOR (RECEIVE) with a timeout: takes messages of one conversation group, and locks
it until the transaction ends. Groups that others hold are passed over. What LIMIT and WHERE
around the call leave out is consumed all the same.

queue: whose messages are meant.
top: how many messages at most; NULL is all of the group.
conversation_handle: of this conversation only, waiting for who holds its group.
conversation_group_id: of this group only, waiting for who holds it.
timeout: how long to wait for a message; NULL is for ever; above 0 in READ COMMITTED only.

Returns: rows of broker.message, ordered by conversation and sequence; none if nothing came within
  the timeout.
Rights: RECEIVE on the queue.
Locks: the group's row, until the transaction ends.
Errors: 153, 208, 229, 8426, 8436, 8468, 9617
Example: select conversation_handle, message_type_name, convert_from(message_body, 'UTF8') from broker.receive('warehouse', top => 100);$$;
