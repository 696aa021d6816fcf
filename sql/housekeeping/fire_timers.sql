-- Puts a DialogTimer message into the queue of each endpoint whose timer is over.
--
-- An Error, -8489, goes into that of each whose lifetime is over. Returns how many messages that
-- made. A timer of a queue that is off waits until it is on, and no look meets it before. Of each
-- queue at most 1,000 fire at once.
-- Locks: the timers, skipping one that is being set anew; no group. Last the endpoints whose
-- lifetime is over, skipping those that somebody changes: these are looked at again.
-- Plan: conversation_timers_due for each of timed_queues, and endpoints_lifetime, as far as they
-- are due.
create or replace function broker_private.fire_timers()
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  -- The clock is volatile: in a condition it would be asked for each row, by a walk over all timers and all open endpoints.
  moment constant timestamp with time zone := broker_private.clock();
  fired integer;
  queues integer[];
  expired bigint;
  is_over bigint[] := '{}';
  expirations integer := 0;
begin
  with due as materialized (
    select t.endpoint_no, e.group_no, e.queue_id, e.priority, e.local_end
    from broker_private.timed_queues() w
    cross join lateral (
      select x.endpoint_no from broker_private.conversation_timers x
      where x.queue_id = w.queue_id and x.fires_at <= moment
      order by x.fires_at
      limit 1000
      for update skip locked
    ) t
    -- LIMIT 1: a probe of the key for each timer that is due, whatever the planner believes of the tables' sizes.
    cross join lateral (
      select x.group_no, x.queue_id, x.priority, x.local_end
      from broker_private.endpoints x
      where x.endpoint_no = t.endpoint_no
      limit 1
    ) e
    cross join lateral (
      select x.is_enqueue_enabled from broker_private.queues x where x.queue_id = e.queue_id limit 1
    ) q
    where w.fires_at <= moment and (q.is_enqueue_enabled or e.local_end is not null)
  ),
  gone as (
    delete from broker_private.conversation_timers t using due d where t.endpoint_no = d.endpoint_no
  ),
  put as (
    insert into broker_private.messages (
      group_no, endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, precedence, urgency
    )
    select d.group_no, d.endpoint_no, 0, broker_private.clock(), d.queue_id, 5, 10 - d.priority, 0
    from due d
    where d.local_end is null
    returning queue_id
  )
  select count(*), array_agg(distinct p.queue_id) into fired, queues from put p;
  perform broker_private.note_arrival(u.queue_id) from unnest(queues) as u (queue_id);

  for expired in
    select e.endpoint_no
    from broker_private.endpoints e
    where e.closed_at is null and not e.is_lifetime_over and e.expires_at <= moment
    order by e.expires_at
    limit 1000
  loop
    is_over := is_over || expired;
    continue when exists (
      select from broker_private.endpoints e
      join broker_private.far_events f on f.endpoint_no = e.endpoint_no
      where e.endpoint_no = expired and f.event = case when e.local_end is null then '<far error>' else '<end acknowledged>' end::"char"
    );
    perform broker_private.put_broker_error(
      expired, 8489, 'The dialog has exceeded the specified LIFETIME.'
    );
    -- A side that has ended waits for no acknowledgement any more.
    insert into broker_private.far_events (endpoint_no, event)
    select e.endpoint_no, '<end acknowledged>' from broker_private.endpoints e where e.endpoint_no = expired and e.local_end is not null
    on conflict do nothing;
    if found then
      perform broker_private.drop_unsent(expired, true);
    end if;
    expirations := expirations + 1;
  end loop;
  -- Last, so that what waits for these rows waits for nothing else. One that has ended meanwhile is to be told of again.
  update broker_private.endpoints e
  set is_lifetime_over = true
  where e.ctid = any (array(
    select x.ctid from broker_private.endpoints x
    where x.endpoint_no = any (is_over) and (
      x.local_end is null or exists (
        select from broker_private.far_events f where f.endpoint_no = x.endpoint_no and f.event = '<end acknowledged>'
      )
    )
    for update skip locked
  ));
  return fired + expirations;
end
$$;
