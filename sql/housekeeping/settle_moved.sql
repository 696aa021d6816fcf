-- Brings home what committed late, where its conversation was before a move.
--
-- It lies under a group that MOVE CONVERSATION, or in a queue that ALTER SERVICE, had taken its
-- conversation from. Removes groups that a move left empty. Returns how many messages came home. A
-- move is watched for 30 minutes, and until every transaction of its time is over. RECEIVE does the
-- same for what it meets.
-- Locks: groups, skipping those that others hold.
create or replace function broker_private.settle_moved()
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  horizon constant timestamp with time zone := broker_private.clock() - interval '30 min';
  oldest constant xid8 := pg_snapshot_xmin(pg_current_snapshot());
  group_nos bigint[];
  here bigint;
  moved record;
  strays integer;
  settled integer := 0;
begin
  if not exists (select from broker_private.moved_services)
    and not exists (select from broker_private.moved_conversations v where v.is_watched) then
    return 0;
  end if;
  for moved in
    select v.service_id, v.old_queue_id, s.queue_id, v.moved_at < horizon and v.moved_by < oldest as is_over
    from broker_private.moved_services v
    join broker_private.services s on s.service_id = v.service_id
  loop
    perform broker_private.rehome_service(moved.service_id, false);
    group_nos := array(
      select g.group_no from broker_private.groups g
      where g.group_no in (
        select m.group_no
        from broker_private.messages m
        join broker_private.endpoints e on e.endpoint_no = m.endpoint_no
        where m.queue_id = moved.old_queue_id and e.service_id = moved.service_id and e.queue_id = moved.queue_id
      )
      order by g.group_no
      for update skip locked
    );
    update broker_private.messages m set queue_id = moved.queue_id
    where m.group_no = any (group_nos) and m.queue_id = moved.old_queue_id and m.queue_id <> moved.queue_id;
    get diagnostics strays = row_count;
    settled := settled + strays;
    if strays > 0 then
      perform broker_private.reset_floors(moved.queue_id);
      perform broker_private.note_arrival(moved.queue_id);
    end if;
    delete from broker_private.moved_services v
    where moved.is_over and v.service_id = moved.service_id and v.old_queue_id = moved.old_queue_id;
  end loop;

  group_nos := array(
    select g.group_no from broker_private.groups g
    where g.group_no in (
      select v.group_no from broker_private.moved_conversations v
      where v.is_watched and exists (
        select from broker_private.messages m where m.group_no = v.old_group_no and m.endpoint_no = v.endpoint_no
      )
    )
    order by g.group_no
    for update skip locked
  );
  foreach here in array group_nos loop
    settled := settled + broker_private.gather_moved(here);
  end loop;

  group_nos := array(
    select g.group_no from broker_private.groups g
    where g.group_no in (
      select v.old_group_no from broker_private.moved_conversations v
      where v.is_watched and v.moved_at < horizon and v.moved_by < oldest
    )
    order by g.group_no
    for update skip locked
  );
  update broker_private.moved_conversations v
  set is_watched = false
  where v.is_watched and v.old_group_no = any (group_nos) and v.moved_at < horizon and v.moved_by < oldest;
  delete from broker_private.groups g
  where g.group_no = any (group_nos) and not exists (select from broker_private.endpoints e where e.group_no = g.group_no);
  return settled;
end
$$;
