-- Lets the conversations of a service follow it to the queue that it has now.
--
-- So do their messages and what is retained. What the broker answers in its place (queue 3) stays.
-- Locks: the groups of the service that are not there yet, in the order of their numbers. Those
-- that others hold are waited for, or left; then there are at most 1,000 at once.
create or replace function broker_private.rehome_service(service integer, waits boolean)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  queue constant integer := (select s.queue_id from broker_private.services s where s.service_id = service);
  -- From where a worker fetches what was begun while the service moved: it does not walk over all dialogs.
  left_queues constant integer[] := array(select v.old_queue_id from broker_private.moved_services v where v.service_id = service);
  group_nos bigint[];
begin
  if waits then
    group_nos := array(
      select g.group_no from broker_private.groups g
      where g.group_no in (select e.group_no from broker_private.endpoints e where e.service_id = service and e.queue_id not in (queue, 3))
      order by g.group_no
      for update
    );
  else
    group_nos := array(
      select g.group_no from broker_private.groups g
      where g.group_no in (select e.group_no from broker_private.endpoints e where e.service_id = service and e.queue_id <> queue and e.queue_id = any (left_queues))
      order by g.group_no
      limit 1000
      for update skip locked
    );
  end if;
  if group_nos = '{}' then
    return;
  end if;
  update broker_private.groups g set queue_id = queue, has_moved = true where g.group_no = any (group_nos);
  update broker_private.messages m set queue_id = queue where m.group_no = any (group_nos);
  perform broker_private.reset_floors(queue);
  update broker_private.retained_messages r set queue_id = queue
  from broker_private.endpoints e
  where e.group_no = any (group_nos) and r.endpoint_no = e.endpoint_no;
  -- What a worker is making ready now it has counted.
  update broker_private.incomplete_messages i set queue_id = queue
  from (
    select n.id, n.endpoint_no
    from broker_private.endpoints e
    join broker_private.incomplete_messages n on n.endpoint_no = e.endpoint_no
    where e.group_no = any (group_nos)
    for update of n skip locked
  ) w
  where i.id = w.id and i.endpoint_no = w.endpoint_no;
  update broker_private.early_messages h set queue_id = queue
  from broker_private.endpoints e
  where e.group_no = any (group_nos) and h.endpoint_no = e.endpoint_no;
  -- The new queue may not retain: what is sent then is not counted.
  delete from broker_private.sequence_counters n
  using broker_private.endpoints e
  where e.group_no = any (group_nos) and n.endpoint_no = e.endpoint_no and n.kind = '<next sent>';
  update broker_private.conversation_timers t set queue_id = queue
  from broker_private.endpoints e
  where e.group_no = any (group_nos) and t.endpoint_no = e.endpoint_no;
  update broker_private.quarantine z set queue_id = queue
  from broker_private.endpoints e
  where e.group_no = any (group_nos) and z.endpoint_no = e.endpoint_no;
  update broker_private.endpoints e set queue_id = queue where e.group_no = any (group_nos);
  update broker_private.queues q set holds_quarantine = true
  where q.queue_id = queue and not q.holds_quarantine and exists (
    select from broker_private.quarantine z
    join broker_private.endpoints e on e.endpoint_no = z.endpoint_no
    where e.group_no = any (group_nos)
  );
  perform broker_private.note_arrival(queue);
end
$$;
