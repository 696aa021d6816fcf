-- hot path
-- As lock_next_group, past the messages of groups that others hold and of those walked to before.
--
-- walked: the queue, for each precedence the id at which the last walk ended, and the groups that
-- were found. It goes on from there, so many groups of one transaction cost a single walk. On
-- another queue it begins anew, and so it does once before it finds nothing. Returns the same with
-- the group that it locked at the end, or null.
--
-- Groups that are held may have any number of messages at the head, and walking past them all costs
-- as much as they are many. So it first tries the next 32 in order, where many readers have a few
-- messages each. Then it tries places eight times farther from the head each time, at random in
-- between, and then twice nearer to the end each time. A group that waits for its turn is met by
-- chance if not by place. So 800,000 messages of held groups are passed in some ten looks, all at
-- the head's priority. They are one statement, which stops at the first group that it can lock. Of
-- groups of one priority the oldest comes first while few are held, else about so. Where that finds
-- nothing, the queue is short, or the caller has found a moved group near the head (is_near), it
-- looks at all. That is one probe for each group that is held. Where a move touched the group it
-- asks where the message belongs (pick_moved), one probe for each conversation.
-- Locks: the group's row, skipping groups that are locked.
-- Plan: messages_head, 48 rows, then two for each look; then from the queue's first message for
-- each probe.
create or replace function broker_private.walk_to_group(queue integer, walked bigint[], is_near boolean, uses_floors boolean)
returns bigint[]
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
  passed_over constant bigint[] := coalesce(walked[12:], '{}');
  held bigint[] := passed_over;
  held_endpoints bigint[] := '{}';
  next_group bigint;
  next_endpoint bigint;
  next_level bigint;
  next_head bigint;
  level_of_head smallint;
  head bigint;
  beginning bigint[] := '{0,0,0,0,0,0,0,0,0,0}';
  places bigint[];
  is_resumed boolean := coalesce(walked[1] = queue, false);
  tail bigint;
  looks_from_head integer;
begin
  if is_resumed then
    -- What lies before its places this transaction has walked over.
    head := 0;
  elsif uses_floors then
    select m.level, m.id into level_of_head, head from broker_private.first_message(queue) m;
  else
    select m.precedence, m.id into level_of_head, head
    from broker_private.messages m
    where m.queue_id = queue
    order by m.precedence, m.id
    limit 1;
  end if;
  if head is null then
    return null;
  end if;
  -- The caller has tried the first 16, and there are no others.
  if not is_near and not exists (
    select from broker_private.messages m
    where m.queue_id = queue and (m.precedence, m.id) >= (level_of_head, head)
    order by m.precedence, m.id
    offset 16
    limit 1
  ) and not exists (select from broker_private.moved_conversations) then
    return null;
  end if;
  select m.id into tail
  from broker_private.messages m
  where m.queue_id = queue and m.precedence = level_of_head
  order by m.id desc
  limit 1;
  if not is_near then
    -- Each group is tried once, however many messages it has there.
    select g.group_no into picked
    from (
      select c.group_no
      from (
        select m.group_no, m.id from broker_private.messages m
        where m.queue_id = queue and m.precedence = level_of_head and m.id >= head
        order by m.id
        offset 16
        limit 32
      ) c
      where c.group_no <> all (passed_over)
      group by c.group_no
      order by min(c.id)
    ) n
    cross join lateral (
      select x.group_no from broker_private.groups x where x.group_no = n.group_no and not x.has_moved for update skip locked
    ) g
    limit 1;
    if found then
      return array[queue] || beginning || passed_over || picked;
    end if;
  end if;
  if not is_near and head + 128 < tail then
    looks_from_head := ceil(ln((tail - head) / 16.0) / ln(8.0));
    select g.group_no into picked
    from generate_series(1, looks_from_head + 20) as l (look)
    cross join lateral (
      select
        case
          when l.look <= looks_from_head then head + (16 * 8.0 ^ (l.look - 1) * (1 + 7 * random()))::bigint
          else tail - ((tail - head) * (0.5 + random()) * 0.5 ^ (l.look - looks_from_head))::bigint
        end as id
    ) p
    cross join lateral (
      select m.group_no from broker_private.messages m
      where m.queue_id = queue and m.precedence = level_of_head and m.id >= p.id
      order by m.id
      limit 2
    ) c
    cross join lateral (
      select x.group_no from broker_private.groups x
      where x.group_no = c.group_no and not x.has_moved and x.group_no <> all (passed_over)
      for update skip locked
    ) g
    limit 1;
    if found then
      return array[queue] || beginning || passed_over || picked;
    end if;
  end if;

  if uses_floors then
    beginning := broker_private.floors_of(queue);
  end if;
  places := case when is_resumed then walked[2:11] else beginning end;
  loop
    select m.group_no, m.endpoint_no, l.level, m.id into next_group, next_endpoint, next_level, head
    from unnest(places) with ordinality as l (place, level)
    cross join lateral (
      select x.group_no, x.endpoint_no, x.id from broker_private.messages x
      where x.queue_id = queue and x.precedence = l.level - 1 and x.id >= l.place
        and x.group_no <> all (held) and x.endpoint_no <> all (held_endpoints)
      order by x.id
      limit 1
    ) m
    -- What was there first was the most urgent.
    where is_resumed or l.level > level_of_head
    limit 1;
    if not found and is_resumed then
      is_resumed := false;
      level_of_head := 0;
      places := beginning;
      continue;
    elsif not found then
      return null;
    end if;
    places[next_level] := head;
    select g.group_no, g.has_moved into picked, has_moved
    from broker_private.groups g
    where g.group_no = next_group
    for update skip locked;
    if found and not has_moved then
      return array[queue] || places || passed_over || picked;
    elsif not found and not exists (
      select from broker_private.moved_conversations v where v.old_group_no = next_group
    ) then
      held := held || next_group;
    else
      picked := broker_private.pick_moved(queue, next_endpoint);
      if picked is not null and picked <> all (held) then
        return array[queue] || places || passed_over || picked;
      end if;
      held_endpoints := held_endpoints || next_endpoint;
    end if;
  end loop;
end
$$;
