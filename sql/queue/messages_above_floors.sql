-- hot path
-- Where the first messages are that RECEIVE takes from a group that it holds.
--
-- Or from one conversation of it. It says how large they are and of what kind, in no order. It
-- begins at the queue's floors. It finds what a search of the group from its beginning finds,
-- except what lies on a conversation that is gone. The group must not have moved: a stray carries
-- the queue where it was sent, whose floors are others. One search for each conversation and
-- urgency walks past nothing that is dead and below its floor. In a group of more than 16
-- conversations there is one for each precedence. It passes the index entries of what is dead,
-- though not the messages. The caller holds the group, and so does whoever puts a message with an
-- old id into it. So floors as of now are right for the group. Called with the settings of RECEIVE:
-- making them again would cost as much as the search. Only sorting is turned off. Where no row is
-- believed, messages_head seems cheaper than messages_group, which is the higher tree.
-- Plan: endpoints_group, then messages_group for each.
create or replace function broker_private.messages_above_floors(queue integer, group_number bigint, endpoint bigint, wanted bigint)
returns table (
  id bigint, location tid, size bigint, endpoint_no bigint, message_type_id integer, urgency smallint, sequence_number bigint, shared_size integer
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_sort = off
as $$
declare
  endpoint_nos bigint[] := array[endpoint];
  walked bigint := pg_stat_get_xact_tuples_returned('broker_private.messages_group'::regclass)
    - pg_stat_get_xact_tuples_fetched('broker_private.messages_group'::regclass);
  pages bigint := pg_stat_get_xact_blocks_fetched('broker_private.messages_group'::regclass);
begin
  if endpoint is null then
    endpoint_nos := array(select e.endpoint_no from broker_private.endpoints e where e.group_no = group_number limit 17);
  end if;
  if cardinality(endpoint_nos) < 17 then
    return query
    select m.id, m.location, m.size, m.endpoint_no, m.message_type_id, m.urgency, m.sequence_number, m.shared_size
    from (
      select e.endpoint_no, 10 - e.priority as precedence, f.floors[11 - e.priority] as floor, u.urgency
      from (
        select coalesce(
          -- As broker_private.floors_of does.
          (select x.floors from broker_private.queue_floors x where x.queue_id = queue order by x.number desc limit 1),
          '{0,0,0,0,0,0,0,0,0,0}'
        ) as floors
        offset 0
      ) f
      cross join unnest(endpoint_nos) as n (endpoint_no)
      cross join lateral (
        select x.endpoint_no, x.priority from broker_private.endpoints x where x.endpoint_no = n.endpoint_no limit 1
      ) e
      cross join unnest('{0,1,2}'::smallint[]) as u (urgency)
      order by precedence, e.endpoint_no, u.urgency
    ) p
    cross join lateral (
      select
        x.id, x.ctid as location, coalesce(octet_length(x.body), x.shared_size, 0)::bigint as size, x.endpoint_no, x.message_type_id, x.urgency,
        x.sequence_number, x.shared_size
      from broker_private.messages x
      where x.group_no = group_number and x.precedence = p.precedence and x.endpoint_no = p.endpoint_no and x.urgency = p.urgency
        and x.id >= p.floor
      order by x.id
      limit messages_above_floors.wanted
    ) m
    limit messages_above_floors.wanted;
  else
    return query
    select m.id, m.location, m.size, m.endpoint_no, m.message_type_id, m.urgency, m.sequence_number, m.shared_size
    from unnest(broker_private.floors_of(queue)) with ordinality as l (floor, level)
    cross join lateral (
      select
        x.id, x.ctid as location, coalesce(octet_length(x.body), x.shared_size, 0)::bigint as size, x.endpoint_no, x.message_type_id, x.urgency,
        x.sequence_number, x.shared_size
      from broker_private.messages x
      where x.group_no = group_number and x.precedence = l.level - 1 and x.id >= l.floor
      order by x.endpoint_no, x.urgency, x.id
      limit messages_above_floors.wanted
    ) m
    limit messages_above_floors.wanted;
  end if;
  -- Where pick_above_floors sees nothing of it: RECEIVE names the group.
  walked := pg_stat_get_xact_tuples_returned('broker_private.messages_group'::regclass)
    - pg_stat_get_xact_tuples_fetched('broker_private.messages_group'::regclass) - walked;
  pages := pg_stat_get_xact_blocks_fetched('broker_private.messages_group'::regclass) - pages;
  -- Each conversation is three searches of some four pages.
  if walked > 200 and random() * walked < 2000 or pages > 60 + 12 * cardinality(endpoint_nos) + wanted / 20 and random() < 0.1 then
    perform broker_private.raise_floors(queue, walked, group_number);
  end if;
end
$$;
