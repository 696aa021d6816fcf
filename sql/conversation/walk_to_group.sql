-- hot path
-- broker_private.walk_to_group(queue, passed over): as pick_group, past the messages of groups that others hold and of those passed over: one
-- probe for each such group. Where a move touched the group it asks where the message belongs (pick_moved), one probe for each conversation.
-- Locks: the group's row, skipping groups that are locked.
-- Plan: messages_head from its beginning for each probe.
create or replace function broker_private.walk_to_group(queue integer, passed_over bigint[])
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
  held bigint[] := passed_over;
  held_endpoints bigint[] := '{}';
  next_group bigint;
  next_endpoint bigint;
begin
  loop
    select m.group_no, m.endpoint_no into next_group, next_endpoint
    from broker_private.messages m
    where m.queue_id = queue and m.group_no <> all (held) and m.endpoint_no <> all (held_endpoints)
    order by m.precedence, m.id
    limit 1;
    if not found then
      return null;
    end if;
    select g.group_no, g.has_moved into picked, has_moved
    from broker_private.groups g
    where g.group_no = next_group
    for update skip locked;
    if found and not has_moved then
      return picked;
    elsif not found and not exists (
      select from broker_private.moved_conversations v where v.old_group_no = next_group
    ) then
      held := held || next_group;
    else
      picked := broker_private.pick_moved(queue, next_endpoint);
      if picked is not null and picked <> all (held) then
        return picked;
      end if;
      held_endpoints := held_endpoints || next_endpoint;
    end if;
  end loop;
end
$$;
