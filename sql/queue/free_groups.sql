-- How many groups with messages nobody holds, counted up to at_most.
--
-- It looks at the queue's oldest 1,000 messages. No lock is tried: a RECEIVE at the same moment
-- would skip the group.
-- Plan: messages_head from the queue's floors, then groups by key.
create or replace function broker_private.free_groups(queue integer, at_most integer)
returns integer
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
  return (
    select count(*) from (
      select from (
        select distinct h.group_no
        from (
          select m.group_no
          from unnest(broker_private.floors_of(queue)) with ordinality as l (floor, level)
          cross join lateral (
            select x.group_no from broker_private.messages x
            where x.queue_id = queue and x.precedence = l.level - 1 and x.id >= l.floor
            order by x.id
            limit 1000
          ) m
          limit 1000
        ) h
      ) d
      join broker_private.groups g on g.group_no = d.group_no
      where not broker_private.is_in_progress(g.xmax)
      limit at_most
    ) f
  );
end
$$;
