-- Moves the floors of a queue (floors_of) up to its oldest messages.
--
-- Called after a search walked past so many deleted ones, or many pages of them. From then on
-- RECEIVE looks at the floors.
--
-- A message may be on its way whose id is lower than those of messages that are here: its sender
-- has not committed. Ids come from the sequence queuing_order, without a cache. nextval keeps a
-- lock on it until the end of the transaction, so pg_locks shows who is sending. So it reads the
-- sequence's last value first, not by a function of sequences, which takes that lock. Then it reads
-- who is sending. Once all of them have ended, every id up to that value is decided. Senders that
-- are in flight are remembered for the next time. One that was prepared meanwhile has another name,
-- so any that is prepared counts as one of them. The row with the senders that are remembered is
-- read before the look at who is sending now. A row that another raiser put there after the look
-- may remember later senders, and it would seem that all of them had ended. It is read again after
-- the look: a reset that was over by then has put another one there. tests/specs/floors.tla is a
-- model of this, which TLC checks. A message that somebody has received and not committed is seen
-- here, and stays above the floor. Those that this transaction has received come back only together
-- with the floor that was before. The search that met the deleted messages has marked in the index
-- what nobody can see any more. That costs no search anything any more, but its pages do, until a
-- vacuum takes them out. Only pages, and what this search meets again, are worth a floor. In READ
-- COMMITTED only, as all depends on the order in which statements look.
-- Locks: the row of floors that is replaced, by trying. Whoever has it raises already, and is
-- waited for only by those who walk much farther. The queue's row, by trying, where RECEIVE begins
-- to look at floors.
-- Plan: messages_head, one search from each floor; messages_group for one group.
create or replace function broker_private.raise_floors(queue integer, walked bigint, group_number bigint)
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
  this_number bigint;
  newest_number bigint;
  last_id bigint;
  senders text[];
  is_prepared boolean;
  is_reset boolean;
  base broker_private.queue_floors%rowtype;
  base_location tid;
  raised bigint[];
  first_level smallint;
  is_deep boolean;
  dead_before bigint;
  dead bigint;
  saved_dead bigint;
  pages_before bigint;
  pages bigint;
  saved_pages bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' or current_setting('transaction_read_only') = 'on' then
    return;
  end if;
  -- The order of these five counts: see above, and reset_floors.
  this_number := nextval('broker_private.floor_numbers');
  select f.* into base from broker_private.queue_floors f where f.queue_id = queue order by f.number desc limit 1;
  select s.last_value - case when s.is_called then 0 else 1 end into last_id from broker_private.queuing_order s;
  select
    coalesce(array_agg(l.virtualtransaction) filter (where l.relation = 'broker_private.queuing_order'::regclass), '{}'),
    coalesce(bool_or(l.pid is null), false),
    coalesce(bool_or(l.relation = 'broker_private.floor_resets'::regclass), false)
  into senders, is_prepared, is_reset
  from pg_locks l
  where l.locktype = 'relation' and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.relation in ('broker_private.queuing_order'::regclass, 'broker_private.floor_resets'::regclass)
    and l.mode = 'RowExclusiveLock' and l.pid is distinct from pg_backend_pid();
  select f.number into newest_number
  from broker_private.queue_floors f
  where f.queue_id = queue
  order by f.number desc
  limit 1;
  if is_reset or newest_number is distinct from base.number or newest_number > this_number then
    -- To be replaced only by a newer row: what lies between the two may be there, and not be right.
    return;
  elsif newest_number is not null then
    select f.ctid into base_location
    from broker_private.queue_floors f
    where f.queue_id = queue and f.number = base.number
    for update skip locked;
    if not found and walked < 2000 then
      return;
    end if;
  else
    base := row(queue, this_number, array_fill(0::bigint, array[10]), null, false, 0, 0, '{}');
  end if;

  if not is_prepared and not base.senders && senders then
    base.decided := base.horizon;
    base.horizon := last_id;
    base.senders := senders;
  end if;
  if senders = '{}' then
    base.decided := last_id;
  end if;
  raised := base.floors;
  -- The first look goes from the floors to the messages, the second one from there: so it is known how much that saves.
  for look in 1..2 loop
    dead_before := broker_private.walked_in_vain('broker_private.messages_head');
    pages_before := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass);
    select array_agg(least(coalesce(o.id, base.decided + 1), base.decided + 1) order by l.level), min(l.level) filter (where o.id is not null) - 1
    into raised, first_level
    from unnest(raised) with ordinality as l (floor, level)
    left join lateral (
      select m.id from broker_private.messages m
      where m.queue_id = queue and m.precedence = l.level - 1 and m.id >= l.floor
      order by m.id
      limit 1
    ) o on true;
    dead := broker_private.walked_in_vain('broker_private.messages_head') - dead_before;
    pages := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass) - pages_before;
    saved_dead := coalesce(saved_dead, 2 * dead) - dead;
    saved_pages := coalesce(saved_pages, 2 * pages) - pages;
  end loop;
  first_level := coalesce(first_level, base.level);
  dead_before := broker_private.walked_in_vain('broker_private.messages_head');
  pages_before := pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass);
  perform from broker_private.messages m where m.queue_id = queue and m.precedence < first_level order by m.precedence, m.id limit 1;
  if broker_private.walked_in_vain('broker_private.messages_head') - dead_before > 50
    or pg_stat_get_xact_blocks_fetched('broker_private.messages_head'::regclass) - pages_before > 8
  then
    first_level := null;
  end if;
  is_deep := broker_private.is_deep_group(group_number)
    or base.is_deep and exists (select from broker_private.queues q where q.queue_id = queue and q.has_floors);
  if saved_dead <= 200 and saved_pages < 10 and first_level is not distinct from base.level and is_deep = base.is_deep then
    return;
  end if;
  insert into broker_private.queue_floors (queue_id, number, floors, level, is_deep, decided, horizon, senders)
  values (queue, this_number, raised, first_level, is_deep, base.decided, base.horizon, base.senders);
  delete from broker_private.queue_floors f where f.ctid = base_location;

  update broker_private.queues q set has_floors = true
  where q.queue_id = (
    select x.queue_id from broker_private.queues x where x.queue_id = queue and not x.has_floors for no key update skip locked
  );
end
$$;
