-- hot path
-- Locks the group that RECEIVE without WHERE works on, and returns its number or null.
--
-- Of those that nobody holds that is the one with the oldest of the most urgent messages.
--
-- The oldest 16 messages of the queue are tried in one statement, which stops at the first group
-- that can be locked. Only when all 16 belong to groups that others hold, or a move touched the
-- first that it could lock, does it walk (walk_to_group). RECEIVE has such a statement too:
-- measured, a call of this function adds a tenth to a fifth to a RECEIVE TOP (1).
-- Locks: the group's row, skipping groups that are locked.
-- Plan: messages_head, at most 16 rows, then groups by key.
create or replace function broker_private.lock_next_group(queue integer)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  picked bigint;
  has_moved boolean;
  chosen record;
  -- Now and then where there are none, as RECEIVE does; not after this transaction may have deleted messages itself.
  uses_floors constant boolean := (
    select q.has_floors or random() < 0.01 and pg_current_xact_id_if_assigned() is null
    from broker_private.queues q
    where q.queue_id = queue
  );
begin
  if uses_floors then
    chosen := broker_private.pick_above_floors(queue, true);
    picked := chosen.group_no;
    has_moved := chosen.has_moved;
  else
    select c.group_no, g.has_moved into picked, has_moved
    from (
      select m.group_no from broker_private.messages m
      where m.queue_id = queue
      order by m.precedence, m.id
      limit 16
    ) c
    cross join lateral (
      select x.has_moved from broker_private.groups x where x.group_no = c.group_no for update skip locked
    ) g
    limit 1;
  end if;
  if picked is not null and not has_moved then
    return picked;
  end if;
  return (broker_private.walk_to_group(queue, null, picked is not null, uses_floors))[12];
end
$$;
