-- broker_private.leave_floors(queue): lets RECEIVE look from the beginning again, if what was received last from above the floors does not stay in the index any more.
-- The floors stay: they are right, only not needed.
-- Locks: the queue's row, by trying.
-- Plan: messages_head, at most 2,000 ids below each floor, twice.
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
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  -- As in raise_floors the second look counts.
  for look in 1..2 loop
    walked := broker_private.walked_in_vain('broker_private.messages_head');
    perform
    from unnest(broker_private.floors_of(queue)) with ordinality as l (floor, level)
    cross join lateral (
      select from broker_private.messages x
      where x.queue_id = queue and x.precedence = l.level - 1 and x.id >= l.floor - 2000 and x.id < l.floor
      order by x.id
      limit 1
    ) m;
    walked := broker_private.walked_in_vain('broker_private.messages_head') - walked;
  end loop;
  if walked >= 50 then
    return;
  end if;
  update broker_private.queues q set has_floors = false
  where q.queue_id = (
    select x.queue_id from broker_private.queues x where x.queue_id = queue and x.has_floors for no key update skip locked
  );
end
$$;
