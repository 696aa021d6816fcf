-- How many messages lie in the queue, counted up to 10,001; of one group, if it is given.
-- Plan: messages_head from the queue's floors, or messages_group.
create or replace function broker_private.messages_waiting(queue integer, group_number bigint default null)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return case when group_number is null then (
    select count(*) from (
      select
      from unnest(broker_private.diagnosed_floors(queue)) with ordinality as l (floor, level)
      cross join lateral (
        select from broker_private.messages x
        where x.queue_id = queue and x.precedence = l.level - 1 and x.id >= l.floor
        order by x.id
        limit 10001
      ) m
      limit 10001
    ) c
  ) else (
    select count(*) from (
      select from broker_private.messages x where x.group_no = group_number limit 10001
    ) c
  ) end;
end
$$;
