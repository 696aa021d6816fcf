-- Brings home what committed late, where its conversation was before a move.
--
-- It lies under a group that MOVE CONVERSATION, or in a queue that ALTER SERVICE, had taken its
-- conversation from. Removes groups that a move left empty. Returns how many messages came home. A
-- move is watched for 30 minutes, and until every transaction of its time is over. RECEIVE does the
-- same for what it meets. A call looks at 1,000 conversations that moved. It looks at 1,000
-- messages of each queue that a service has left. The next call looks at those behind them.
-- Locks: the moved services, then groups, skipping what others hold.
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
  most constant integer := 1000;
  turn broker_private.moved_turn%rowtype;
  endpoint_nos bigint[];
  old_group_nos bigint[];
  group_nos bigint[];
  places bigint[];
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
    select
      v.service_id, v.old_queue_id, s.queue_id, v.place,
      case when v.place = 0 then v.moved_at < horizon and v.moved_by < oldest else v.is_last_round end as is_last_round
    from broker_private.moved_services v
    join broker_private.services s on s.service_id = v.service_id
    for update of v skip locked
  loop
    perform broker_private.rehome_service(moved.service_id, false);
    select
      array_agg(h.group_no) filter (
        -- Not by a condition: without statistics the planner takes the index by service for it.
        where (
          select e.service_id = moved.service_id and e.queue_id = moved.queue_id
          from broker_private.endpoints e
          where e.endpoint_no = h.endpoint_no
        )
      ),
      array_agg(h.id order by h.id)
    into group_nos, places
    from (
      select m.id, m.group_no, m.endpoint_no
      from generate_series(0, 9) as l (precedence)
      cross join lateral (
        select x.id, x.group_no, x.endpoint_no from broker_private.messages x
        where x.queue_id = moved.old_queue_id and x.precedence = l.precedence and x.id > moved.place
        order by x.id
        limit most
      ) m
      order by m.id
      limit most
    ) h;
    group_nos := array(
      select g.group_no from broker_private.groups g where g.group_no = any (group_nos) order by g.group_no for update skip locked
    );
    update broker_private.messages m set queue_id = moved.queue_id
    where m.group_no = any (group_nos) and m.queue_id = moved.old_queue_id and m.queue_id <> moved.queue_id;
    get diagnostics strays = row_count;
    settled := settled + strays;
    if strays > 0 then
      perform broker_private.reset_floors(moved.queue_id);
      perform broker_private.note_arrival(moved.queue_id);
    end if;
    if cardinality(places) = most then
      update broker_private.moved_services v set place = places[most], is_last_round = moved.is_last_round
      where v.service_id = moved.service_id and v.old_queue_id = moved.old_queue_id;
    elsif moved.is_last_round and not exists (
      select from broker_private.endpoints e where e.service_id = moved.service_id and e.queue_id = moved.old_queue_id
    ) then
      delete from broker_private.moved_services v
      where v.service_id = moved.service_id and v.old_queue_id = moved.old_queue_id;
    elsif moved.place > 0 then
      update broker_private.moved_services v set place = 0
      where v.service_id = moved.service_id and v.old_queue_id = moved.old_queue_id;
    end if;
  end loop;

  select x.* into turn from broker_private.moved_turn x;
  select array_agg(w.endpoint_no order by w.endpoint_no, w.old_group_no), array_agg(w.old_group_no order by w.endpoint_no, w.old_group_no)
  into endpoint_nos, old_group_nos
  from (
    select v.endpoint_no, v.old_group_no
    from broker_private.moved_conversations v
    where v.is_watched and (v.endpoint_no, v.old_group_no) > (turn.endpoint_no, turn.old_group_no)
    order by v.endpoint_no, v.old_group_no
    limit most
  ) w;
  -- Written only where not all of them fit into one turn. Two calls at once may have the same turn.
  if cardinality(endpoint_nos) = most then
    update broker_private.moved_turn x set endpoint_no = endpoint_nos[most], old_group_no = old_group_nos[most];
  elsif turn.endpoint_no > 0 then
    update broker_private.moved_turn x set endpoint_no = 0, old_group_no = 0;
  end if;
  group_nos := array(
    select g.group_no from broker_private.groups g
    where g.group_no in (
      select v.group_no
      from unnest(endpoint_nos, old_group_nos) as w (endpoint_no, old_group_no)
      join broker_private.moved_conversations v on v.endpoint_no = w.endpoint_no and v.old_group_no = w.old_group_no
      where exists (select from broker_private.messages m where m.group_no = v.old_group_no and m.endpoint_no = v.endpoint_no)
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
      select v.old_group_no
      from unnest(endpoint_nos, old_group_nos) as w (endpoint_no, old_group_no)
      join broker_private.moved_conversations v on v.endpoint_no = w.endpoint_no and v.old_group_no = w.old_group_no
      where v.is_watched and v.moved_at < horizon and v.moved_by < oldest
    )
    order by g.group_no
    for update skip locked
  );
  update broker_private.moved_conversations v
  set is_watched = false
  from unnest(endpoint_nos, old_group_nos) as w (endpoint_no, old_group_no)
  where v.endpoint_no = w.endpoint_no and v.old_group_no = w.old_group_no and v.is_watched
    and v.old_group_no = any (group_nos) and v.moved_at < horizon and v.moved_by < oldest;
  delete from broker_private.groups g
  where g.group_no = any (group_nos)
    and not exists (select from broker_private.endpoints e where e.group_no = g.group_no)
    and not exists (select from broker_private.moved_conversations v where v.old_group_no = g.group_no and v.is_watched);
  return settled;
end
$$;
