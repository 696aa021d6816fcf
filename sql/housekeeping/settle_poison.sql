-- What a worker does about rollbacks.
--
-- It turns off the queues that five of them have poisoned, and quarantines the conversations that
-- have failed five times. It puts back those whose next try is due, 100 of each queue, and sets
-- aside what arrived for the others. That is for 100 of them, and for the 100 behind these the next
-- time. Meanwhile RECEIVE does it. Returns what was turned off (a queue alone) and quarantined, for
-- the log.
-- Locks: the group's row of each conversation that it touches; what somebody else holds is left for
-- the next time.
-- Plan: quarantine_retry_at, the key of quarantine from where the last call ended, and
-- quarantine_unexplained: who can make many conversations fail makes no look longer.
create or replace function broker_private.settle_poison()
returns table (queue_name text, conversation_handle uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
as $$
declare
  queue record;
  conversation record;
  turn bigint[];
  last bigint;
begin
  for queue in
    select q.queue_id, q.name, q.holds_quarantine, q.is_receive_enabled from broker_private.queues q where q.is_receive_enabled or q.holds_quarantine
  loop
    queue_name := queue.name;
    conversation_handle := null;
    if queue.is_receive_enabled and broker_private.is_poisoned(queue.queue_id) and broker_private.disable_poisoned_queue(queue.queue_id) then
      return next;
    end if;
    continue when not queue.holds_quarantine;
    for conversation in
      select f.endpoint_no, f.failures, f.session_id, e.conversation_handle
      from broker_private.failing_conversations(queue.queue_id) f
      cross join lateral (
        select x.conversation_handle from broker_private.endpoints x where x.endpoint_no = f.endpoint_no limit 1
      ) e
      where f.failures >= 5
    loop
      if broker_private.try_lock_group_of(conversation.endpoint_no)
        and broker_private.quarantine_conversation(conversation.endpoint_no, conversation.failures, null, conversation.session_id, null) then
        conversation_handle := conversation.conversation_handle;
        return next;
      end if;
    end loop;
  end loop;
  if not exists (select from broker_private.quarantine) then
    return;
  end if;
  perform broker_private.put_back_due(null);
  turn := array(
    select z.endpoint_no
    from broker_private.quarantine z
    where z.endpoint_no > (select t.last_value from broker_private.quarantine_turn t)
    order by z.endpoint_no
    limit 100
  );
  -- Written only where not all of them fit into one turn. Two calls at once may have the same turn.
  last := case when cardinality(turn) = 100 then turn[100] else 0 end;
  if last <> (select t.last_value from broker_private.quarantine_turn t) then
    perform setval('broker_private.quarantine_turn', last);
  end if;
  for conversation in
    select e.endpoint_no
    from unnest(turn) as u (endpoint_no)
    -- LIMIT 1: a probe of an index for each, whatever the planner believes of the tables' sizes.
    cross join lateral (
      select x.endpoint_no, x.group_no, x.priority from broker_private.endpoints x where x.endpoint_no = u.endpoint_no limit 1
    ) e
    where (
      select true from broker_private.messages m
      where m.group_no = e.group_no and m.precedence = 10 - e.priority and m.endpoint_no = e.endpoint_no
      order by m.urgency, m.id
      limit 1
    )
  loop
    if broker_private.try_lock_group_of(conversation.endpoint_no) then
      perform broker_private.move_aside(conversation.endpoint_no);
    end if;
  end loop;
  -- An activated procedure's error, which its reader logs after the rollback: its own words (9724), not the line that says how the task ended.
  -- It comes soon or not at all, so the youngest lines are enough.
  update broker_private.quarantine z
  set last_error = f.text
  from (
    select distinct on (x.endpoint_no) x.location, l.text
    from (select a.id, a.queue_id, a.spid, a.severity, a.number, a.text from broker_private.activation_log a order by a.id desc limit 1000) l
    cross join lateral (
      select y.ctid as location, y.endpoint_no from broker_private.quarantine y where y.failed_in = l.spid and y.last_error is null offset 0
    ) x
    cross join lateral (
      select true from broker_private.endpoints y where y.endpoint_no = x.endpoint_no and y.queue_id = l.queue_id limit 1
    ) e
    where l.severity = 'ERROR' and l.number = 9724
    order by x.endpoint_no, l.id desc
  ) f
  where z.ctid = f.location;
end
$$;
