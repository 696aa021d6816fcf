-- Closes endpoints whose end was acknowledged, and removes what is left of closed conversations.
--
-- Returns how many endpoints it closed and removed, at most 10,000 of each: who gets so many calls
-- it again.
--
-- An initiator's side and one that was cleaned up keep their rows, unseen. A message may still be
-- on its way to them from a transaction that saw them open. A group that somebody holds, to begin
-- another dialog in it for one, is left for the next time. A target's side stays CLOSED for 30
-- minutes, so that a first message that is sent again opens no second one. closed_at lies ahead
-- where closing_time says so.
-- Plan: far_events_to_close and endpoints_closed, as far as they are due.
create or replace function broker_private.sweep()
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  closed integer;
  gone bigint[];
  horizon constant timestamp with time zone := broker_private.clock() - interval '30 min';
begin
  perform broker_private.sweep_marks();
  -- Never the newest of a queue: one that is older may not be right any more.
  delete from broker_private.queue_floors f
  where f.ctid = any (array(
    select x.ctid from broker_private.queue_floors x
    where exists (select from broker_private.queue_floors n where n.queue_id = x.queue_id and n.number > x.number)
    for update skip locked
  ));
  -- The event goes with that, so that the index has only what is still to be closed.
  with acknowledged as materialized (
    select x.endpoint_no
    from broker_private.far_events f
    -- LIMIT 1, here and below: a probe of the key for each, whatever the planner believes of the tables' sizes.
    cross join lateral (
      select y.endpoint_no from broker_private.endpoints y
      where y.endpoint_no = f.endpoint_no and y.local_end is not null
      limit 1
      for update skip locked
    ) x
    where f.event = '<end acknowledged>'
    order by f.endpoint_no
    limit 10000
  ),
  gone_events as (
    delete from broker_private.far_events f
    where f.endpoint_no = any (array(select a.endpoint_no from acknowledged a)) and f.event = '<end acknowledged>'
  )
  update broker_private.endpoints e
  set closed_at = broker_private.clock()
  where e.endpoint_no = any (array(select a.endpoint_no from acknowledged a)) and e.closed_at is null;
  get diagnostics closed = row_count;

  perform broker_private.forget_requests();

  -- What a transaction of more than 30 minutes put on a conversation that is gone lies at the head of its queue by now.
  delete from broker_private.messages m
  where m.ctid = any (array(
    select h.location
    from broker_private.queues q
    cross join lateral (
      select m.location, m.endpoint_no
      from unnest(broker_private.floors_of(q.queue_id)) with ordinality as l (floor, level)
      cross join lateral (
        select x.ctid as location, x.endpoint_no
        from broker_private.messages x
        where x.queue_id = q.queue_id and x.precedence = l.level - 1 and x.id >= l.floor
        order by x.id
        limit 100
      ) m
      limit 100
    ) h
    where (select true from broker_private.endpoints e where e.endpoint_no = h.endpoint_no) is null
  ));

  perform broker_private.sweep_shared_bodies();
  perform broker_private.sweep_traceparents();
  perform broker_private.sweep_destinations();

  select array_agg(e.endpoint_no) into gone
  from (
    select x.endpoint_no
    from broker_private.endpoints x
    cross join lateral (
      select y.group_no from broker_private.groups y where y.group_no = x.group_no limit 1 for update skip locked
    ) g
    where x.closed_at < horizon
    order by x.closed_at
    limit 10000
    for update of x skip locked
  ) e;
  if gone is null then
    return closed;
  end if;
  delete from broker_private.messages m
  where m.ctid = any (array(
    select w.location
    from broker_private.endpoints e
    cross join lateral (
      select x.ctid as location from broker_private.messages x
      where x.group_no = e.group_no and x.endpoint_no = e.endpoint_no
      offset 0
    ) w
    where e.endpoint_no = any (gone)
  ));
  delete from broker_private.quarantined_messages m where m.endpoint_no = any (gone);
  delete from broker_private.quarantine z where z.endpoint_no = any (gone);
  delete from broker_private.noted_failures n where n.endpoint_no = any (gone);
  delete from broker_private.incomplete_messages i where i.endpoint_no = any (gone);
  delete from broker_private.early_messages h where h.endpoint_no = any (gone);
  delete from broker_private.message_pieces p where p.endpoint_no = any (gone);
  delete from broker_private.transmission_messages t where t.endpoint_no = any (gone);
  delete from broker_private.transmission_status s where s.endpoint_no = any (gone);
  delete from broker_private.conversation_timers t where t.endpoint_no = any (gone);
  delete from broker_private.sequence_counters n where n.endpoint_no = any (gone);
  delete from broker_private.moved_conversations v where v.endpoint_no = any (gone);
  delete from broker_private.far_events f where f.endpoint_no = any (gone);
  delete from broker_private.dialog_security d where d.endpoint_no = any (gone);
  delete from broker_private.traceparents t where t.endpoint_no = any (gone);
  delete from broker_private.groups g
  where g.group_no = any (array(select e.group_no from broker_private.endpoints e where e.endpoint_no = any (gone)))
    and (
      select true from broker_private.endpoints e where e.group_no = g.group_no and e.endpoint_no <> all (gone) limit 1
    ) is null;
  delete from broker_private.endpoints e where e.endpoint_no = any (gone);
  delete from broker_private.services s
  where s.name is null and (select true from broker_private.endpoints e where e.service_id = s.service_id limit 1) is null;
  delete from broker_private.contracts c
  where c.name is null and not exists (select from broker_private.endpoints e where e.contract_id = c.contract_id);
  return closed + cardinality(gone);
end
$$;
