-- Lets RECEIVE look from the beginning again.
--
-- It does so once what was received last from above the floors, and its pages, has left the index.
-- The floors stay: they are right, only not needed.
-- Locks: the queue's row, by trying.
-- Plan: messages_head, at most 10,000 ids below each floor, twice.
create or replace function broker_private.leave_floors(queue integer)
returns void
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
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  for of_level in 0..9 loop
    -- As in raise_floors the second look counts.
    for look in 1..2 loop
      walked := broker_private.walked_in_vain('broker_private.messages_head');
      pages := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass);
      perform
      from (select f.floors[of_level + 1] as floor from broker_private.queue_floors f where f.queue_id = queue order by f.number desc limit 1) l
      cross join lateral (
        select from broker_private.messages x
        where x.queue_id = queue and x.precedence = of_level and x.id >= l.floor - 10000 and x.id < l.floor
        order by x.id
        limit 1
      ) m;
      walked := broker_private.walked_in_vain('broker_private.messages_head') - walked;
      pages := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass) - pages;
    end loop;
    -- To come to a page costs three or four.
    if walked >= 50 or pages > 6 then
      return;
    end if;
  end loop;
  update broker_private.queues q set has_floors = false
  where q.queue_id = (
    select x.queue_id from broker_private.queues x where x.queue_id = queue and x.has_floors for no key update skip locked
  );
end
$$;
