-- GET CONVERSATION GROUP: locks the next group that has messages and that nobody else holds.
--
-- Returns its id, or NULL if there is none within the timeout. Nothing is received.
--
-- Called again in one transaction it locks the next group. The setting broker.returned_groups says
-- how far it has walked, and which groups it has returned (walk_to_group). A group that the
-- transaction holds otherwise is returned as any other.
-- Locks: the group's row.
-- Errors: as broker.receive.
-- Why: it is a setting, as set local goes with its transaction, and back with ROLLBACK TO
-- SAVEPOINT, as the locks do. No row is written, and the lock table does not fill. Rights and locks
-- don't depend on it. Anybody can forge it, but then only the own session is offered a group twice
-- or not at all. What is not a list of numbers is an error (22P02) of who wrote it. The counterpart
-- returns '{}' if it wants the public function to vouch (see is_seen).
create or replace function broker.get_conversation_group(queue text, timeout interval default '0')
returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  next record;
  deadline timestamp with time zone;
  pause double precision := 0.002;
  walked constant bigint[] := nullif(current_setting('broker.returned_groups', true), '');
  is_called boolean;
begin
  loop
    next := broker_private.get_conversation_group(current_user, queue, timeout, walked);
    if next.walked = '{}' then
      is_called := broker_private.vouch(current_user);
    elsif next.conversation_group is not null then
      perform set_config('broker.returned_groups', next.walked::text, true);
      return next.conversation_group;
    elsif timeout = interval '0' or broker_private.clock() >= deadline then
      return null;
    else
      deadline := coalesce(deadline, broker_private.clock() + timeout);
      perform pg_sleep(pause);
      pause := least(pause * 1.5, 0.02);
    end if;
  end loop;
end
$$;

create or replace function broker_private.get_conversation_group(
  caller name, queue_name text, timeout interval, inout walked bigint[], out conversation_group uuid
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  stack text;
  queue integer;
  marks regclass;
  mark bigint;
  holds_quarantine boolean;
  has_floors boolean;
  group_number bigint;
  is_first constant boolean := walked is null;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    walked := '{}';
    return;
  end if;
  perform broker_private.check_receive(caller, queue_name, null, null, null, timeout);
  select q.queue_id, q.receive_marks, q.holds_quarantine, q.has_floors into queue, marks, holds_quarantine, has_floors
  from broker_private.queues q
  where q.name = queue_name;
  loop
    if is_first then
      group_number := broker_private.lock_next_group(queue);
      walked := array_fill(null::bigint, '{11}') || group_number;
    else
      walked := broker_private.walk_to_group(queue, walked, true, has_floors);
      group_number := walked[cardinality(walked)];
    end if;
    if group_number is not null and broker_private.is_poisoned(queue) then
      perform broker_private.refuse_poisoned_queue(queue_name);
    end if;
    if group_number is not null and holds_quarantine and broker_private.set_aside(queue, group_number, null) = 0 then
      group_number := null;
      exit;
    end if;
    -- What RECEIVE would find there may be gone since, or lie on a conversation that has ended.
    exit when group_number is null or has_floors and exists (
      select from broker_private.messages_above_floors(queue, group_number, null, 1) l
      cross join lateral (select x.endpoint_no from broker_private.messages x where x.ctid = l.location limit 1) m
      cross join lateral (
        select from broker_private.endpoints x
        where x.endpoint_no = m.endpoint_no and x.group_no = group_number and x.local_end is null
        limit 1
      ) e
    ) or exists (
      select from broker_private.messages m
      cross join lateral (
        select from broker_private.endpoints x
        where x.endpoint_no = m.endpoint_no and x.group_no = group_number and x.local_end is null
        limit 1
      ) e
      where m.group_no = group_number
    );
    delete from broker_private.messages m
    where m.group_no = group_number and (
      select true from broker_private.endpoints e where e.endpoint_no = m.endpoint_no and e.local_end is null
    ) is null;
  end loop;
  if marks is not null then
    mark := case when group_number is null and is_first then broker_private.mark_empty_receive(marks) else nextval(marks) end;
  end if;
  conversation_group := (select g.conversation_group_id from broker_private.groups g where g.group_no = group_number);
end
$$;

comment on function broker.get_conversation_group(text, interval) is
$$GET CONVERSATION GROUP: locks the next group that has messages and that nobody else holds. Called
again in one transaction, it takes the next one.

queue: whose messages are meant.
timeout: how long to wait for a group; NULL is for ever; above 0 in READ COMMITTED only.

Returns: the group's id; NULL if there is none within the timeout.
Rights: RECEIVE on the queue.
Locks: the group's row, until the transaction ends.
Errors: 153, 208, 229, 9617
Example: select broker.get_conversation_group('warehouse');$$;
