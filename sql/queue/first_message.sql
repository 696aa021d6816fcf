-- Precedence and id of the first message of a queue, held or not; null if it is empty.
--
-- Raises the queue's floors, if they are too far behind. That is so if the look walks past more
-- than 200 deleted messages or too many pages of them.
-- Plan: messages_head, one search from each floor.
create or replace function broker_private.first_message(queue integer, out level smallint, out id bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  walked bigint;
  pages bigint;
  group_number bigint;
begin
  walked := broker_private.walked_in_vain('broker_private.messages_head');
  pages := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass);
  select m.precedence, m.id, m.group_no into level, id, group_number
  from unnest(broker_private.floors_of(queue)) with ordinality as l (floor, level)
  cross join lateral (
    select x.precedence, x.id, x.group_no from broker_private.messages x
    where x.queue_id = queue and x.precedence = l.level - 1 and x.id >= l.floor
    order by x.id
    limit 1
  ) m
  limit 1;
  walked := broker_private.walked_in_vain('broker_private.messages_head') - walked;
  pages := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass) - pages;
  -- Where floors can't rise now, as a sender has been at it for long, not each look tries.
  if walked > 200 and random() * walked < 2000 or pages > 60 and random() < 0.1 then
    perform broker_private.raise_floors(queue, walked, group_number);
  end if;
end
$$;
