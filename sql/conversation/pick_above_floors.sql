-- hot path
-- broker_private.pick_above_floors(queue): as the first look of pick_group, of a queue that has floors: it begins there. Returns the group that it locked and whether a move touched
-- it. Raises the floors, if it walked past more than 200 deleted messages, and now and then asks whether they are still needed.
-- Called with the settings of RECEIVE: making them again would cost as much as the search.
-- Locks: the group's row, skipping groups that are locked.
-- Plan: messages_head, one search from each floor, at most 16 rows, then groups by key.
create or replace function broker_private.pick_above_floors(queue integer, out group_no bigint, out has_moved boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  walked bigint := pg_stat_get_xact_tuples_returned('broker_private.messages_head'::regclass)
    - pg_stat_get_xact_tuples_fetched('broker_private.messages_head'::regclass);
begin
  select c.group_no, g.has_moved into group_no, has_moved
  from (
    select m.group_no
    from unnest(coalesce(
      -- As broker_private.floors_of does.
      (select f.floors from broker_private.queue_floors f where f.queue_id = queue order by f.number desc limit 1),
      '{0,0,0,0,0,0,0,0,0,0}'
    )) with ordinality as l (floor, level)
    cross join lateral (
      select x.group_no from broker_private.messages x
      where x.queue_id = queue and x.precedence = l.level - 1 and x.id >= l.floor
      order by x.id
      limit 16
    ) m
    limit 16
  ) c
  cross join lateral (
    select x.has_moved from broker_private.groups x where x.group_no = c.group_no for update skip locked
  ) g
  limit 1;
  walked := pg_stat_get_xact_tuples_returned('broker_private.messages_head'::regclass)
    - pg_stat_get_xact_tuples_fetched('broker_private.messages_head'::regclass) - walked;
  if walked > 200 and random() * walked < 2000 then
    perform broker_private.raise_floors(queue, walked);
  elsif random() < 0.005 then
    perform broker_private.leave_floors(queue);
  end if;
end
$$;
