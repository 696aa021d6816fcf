-- hot path
-- broker_private.walk_to_group(queue): as pick_group, past the messages of groups that others hold: one probe for each such group.
-- Locks: the group's row, skipping groups that are locked.
-- Plan: messages_head from its beginning for each probe.
create or replace function broker_private.walk_to_group(queue integer)
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
  held bigint[] := '{}';
  next_group bigint;
begin
  loop
    select m.group_no into next_group
    from broker_private.messages m
    where m.queue_id = queue and m.group_no <> all (held)
    order by m.precedence, m.id
    limit 1;
    if not found then
      return null;
    end if;
    select g.group_no into picked from broker_private.groups g where g.group_no = next_group for update skip locked;
    if found then
      return picked;
    end if;
    held := held || next_group;
  end loop;
end
$$;
