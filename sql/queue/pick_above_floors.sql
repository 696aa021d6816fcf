-- hot path
-- As the first look of lock_next_group, of a queue that has floors: it begins there.
--
-- Returns the group that it locked, whether a move touched it, and whether a search for its
-- messages should begin at floors too. A sample, and one in ten others, measures. If it walked past
-- more than 200 deleted messages, or too many pages of them, it raises the floors. Now and then it
-- asks whether they are still needed. Nearly always all messages are of one priority: then one look
-- for any that are more urgent, and one search from that priority's floor. To search at each of ten
-- priorities costs twice as much. Called with the settings of RECEIVE: making them again would cost
-- as much as the search. Called in an expression: in a statement it would cost twice as much.
-- Locks: the group's row, skipping groups that are locked.
-- Plan: messages_head, one search from each floor, at most 16 rows, then groups by key.
create or replace function broker_private.pick_above_floors(queue integer, is_sample boolean)
returns broker_private.picked_group
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  measures constant boolean := is_sample or random() < 0.1;
  walked bigint;
  pages bigint;
  floors_by_level bigint[];
  floor bigint;
  only_level smallint;
  is_urgent boolean;
  is_long boolean;
  is_deep boolean;
  picked broker_private.picked_group;
begin
  if measures then
    walked := broker_private.walked_in_vain('broker_private.messages_head');
    pages := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass);
  end if;
  -- As broker_private.floors_of does.
  select
    f.floors, f.floors[f.level + 1], f.level, f.is_deep,
    -- Not by EXISTS, which drops the order: with it no other index is as cheap, whatever is believed of the table.
    (select true from broker_private.messages m where m.queue_id = queue and m.precedence < f.level order by m.precedence, m.id limit 1)
  into floors_by_level, floor, only_level, is_deep, is_urgent
  from broker_private.queue_floors f
  where f.queue_id = queue
  order by f.number desc
  limit 1;
  if is_urgent is null and floor is not null then
    select
      c.group_no, g.has_moved,
      case when g.receive_made > pg_sequence_last_value('broker_private.plan_mark') then g.receive_plan end
    into picked.group_no, picked.has_moved, picked.plan
    from (
      select m.group_no from broker_private.messages m
      where m.queue_id = queue and m.precedence = only_level and m.id >= floor
      order by m.id
      limit 16
    ) c
    cross join lateral (
      select x.has_moved, x.receive_made, x.receive_plan
      from broker_private.groups x
      where x.group_no = c.group_no
      for update skip locked
    ) g
    limit 1;
  end if;
  if picked.group_no is null then
    only_level := null;
    select
      c.group_no, g.has_moved,
      case when g.receive_made > pg_sequence_last_value('broker_private.plan_mark') then g.receive_plan end
    into picked.group_no, picked.has_moved, picked.plan
    from (
      select m.group_no
      from unnest(coalesce(floors_by_level, '{0,0,0,0,0,0,0,0,0,0}')) with ordinality as l (floor, level)
      cross join lateral (
        select x.group_no from broker_private.messages x
        where x.queue_id = queue and x.precedence = l.level - 1 and x.id >= l.floor
        order by x.id
        limit 16
      ) m
      limit 16
    ) c
    cross join lateral (
      select x.has_moved, x.receive_made, x.receive_plan
      from broker_private.groups x
      where x.group_no = c.group_no
      for update skip locked
    ) g
    limit 1;
  end if;
  picked.is_deep := is_deep;
  if measures then
    walked := broker_private.walked_in_vain('broker_private.messages_head') - walked;
    pages := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass) - pages;
    -- Floors that rose in an empty queue know nothing of groups, and a dialog may have become a hot one since.
    if is_deep is not true and (is_sample or random() < 0.1) then
      is_long := broker_private.is_deep_group(picked.group_no);
    end if;
    -- What floors cost is what a hundred pages do.
    if is_long or walked > 200 or pages > (case when is_sample then 120 when only_level is null then 60 else 24 end) then
      perform broker_private.raise_floors(queue, walked, picked.group_no);
    elsif random() < 0.01 then
      perform broker_private.leave_floors(queue);
    end if;
  end if;
  return picked;
end
$$;
