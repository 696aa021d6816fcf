-- Says anew why messages for services of this database wait, where the reason is another by now.
--
-- A service that was missing is there, and its queue is off: nothing moves, so nobody else would
-- say so.
-- Locks: the rows that say it, skipping what somebody else writes.
-- Plan: local_destinations; transmission_status, which has a row only for dialogs with a reason of
-- their own, for 100 of them in turn.
create or replace function broker_private.note_local_reasons()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  local_nos constant integer[] := array(select l.destination_no from broker_private.local_destinations() l);
  began constant bigint := coalesce(pg_sequence_last_value('broker_private.reasons_turn'), 0);
  turn bigint[];
begin
  update broker_private.destinations d
  set transmission_status = x.reason
  from (
    select y.ctid as location, (
      select broker_private.waiting_reason(q)
      from broker_private.queues q
      where q.queue_id = (select s.queue_id from broker_private.services s where s.name = y.service_name) and not q.is_enqueue_enabled
    ) as reason
    from broker_private.destinations y
    where y.transmission_status is not null and y.destination_no = any (local_nos)
    for update of y skip locked
  ) x
  where d.ctid = x.location and d.transmission_status is distinct from x.reason;

  turn := array(
    select w.endpoint_no from broker_private.transmission_status w where w.endpoint_no > began order by w.endpoint_no limit 100
  );
  if cardinality(turn) = 100 or began > 0 then
    perform setval('broker_private.reasons_turn', case when cardinality(turn) = 100 then turn[100] else 0 end);
  end if;
  update broker_private.transmission_status t
  set status = x.reason
  from (
    select w.ctid as location, broker_private.waiting_reason(q.whole) as reason
    from broker_private.transmission_status w
    cross join lateral (
      select y.conversation_id, y.is_initiator, y.far_service, y.destination_no
      from broker_private.endpoints y
      where y.endpoint_no = w.endpoint_no
      limit 1
    ) e
    left join lateral (
      select y.queue_id from broker_private.endpoints y
      where y.conversation_id = e.conversation_id and y.is_initiator <> e.is_initiator
      limit 1
    ) f on true
    left join lateral (
      select y.queue_id from broker_private.services y where y.name = e.far_service limit 1
    ) s on true
    cross join lateral (
      select y as whole from broker_private.queues y where y.queue_id = coalesce(f.queue_id, s.queue_id) and not y.is_enqueue_enabled limit 1
    ) q
    where w.endpoint_no = any (turn) and e.destination_no = any (local_nos) and w.status <> broker_private.waiting_reason(q.whole)
    for update of w skip locked
  ) x
  where t.ctid = x.location;
end
$$;
