-- Locks the group of an open conversation, waiting for whoever has it, and returns the endpoint.
--
-- The endpoint is locked after its group, in the same statement, so it is as new as the lock. In
-- REPEATABLE READ that fails with 40001 if it changed since the snapshot. With the name of a sender
-- who may not send it waits for nobody, and locks nothing.
-- Locks: the group's row, then the endpoint's.
-- Plan: LIMIT 1, a probe of the key, whatever the planner believes of its size. The key is
-- compared once more outside: that is looked at again with what was locked. Not by =, or an index
-- in the order of groups seems of use.
-- Errors: 8426 unknown handle, 229 the sender has no RECEIVE on the queue.
create or replace function broker_private.lock_group_of(handle uuid, sender name default null)
returns broker_private.endpoints
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  e broker_private.endpoints%rowtype;
  waits boolean := sender is null;
  is_there boolean;
begin
  loop
    if waits then
      e := (
        select x
        from broker_private.endpoints x
        cross join lateral (
          select y.group_no from broker_private.groups y where y.group_no = x.group_no limit 1 for update
        ) g
        where x.conversation_handle = handle and g.group_no is not distinct from x.group_no
        for update of x
      );
    else
      e := (
        select x
        from broker_private.endpoints x
        cross join lateral (
          select y.group_no from broker_private.groups y where y.group_no = x.group_no limit 1 for update skip locked
        ) g
        where x.conversation_handle = handle and broker_private.may_receive(sender, x.queue_id)
          and g.group_no is not distinct from x.group_no
        for update of x skip locked
      );
    end if;
    exit when e.local_end is null and e.endpoint_no is not null;
    if e.local_end is not null then
      exit when (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no) is not null;
      is_there := false;
    else
      -- It is held, the sender has no right, or MOVE CONVERSATION changed its group while this waited for the lock.
      is_there := exists (
        select
        from broker_private.endpoints x
        join broker_private.groups g on g.group_no = x.group_no
        where x.conversation_handle = handle
      );
    end if;
    if not is_there then
      found := broker_private.refuse(
        8426, format('The conversation handle "%s" is not found.', coalesce(handle::text, 'NULL')),
        'It never existed here, or the conversation is over: broker.conversation_endpoints lists those of this database.'
      );
    end if;
    if not waits then
      perform broker_private.require_receive(sender, x.queue_id)
      from broker_private.endpoints x
      where x.conversation_handle = handle and x.local_end is null;
      waits := true;
    end if;
  end loop;
  return e;
end
$$;
