-- How many messages wait in the transmission queue, and how many sides of conversations there are.
--
-- Exact up to 10,000; beyond that an estimate, from the table's size as the planner knows it, so
-- that nothing is scanned. Of sides those are counted that broker.conversation_endpoints shows. The
-- first 20,000 rows say how many of all that are. It counts everybody's, so it has rows only for
-- the database's owner and members of pg_monitor.
create or replace view broker.depths with (security_barrier) as
select
  d.name,
  case when d.read <= d.most then d.counted else greatest(d.counted, (p.reltuples * d.counted / d.read)::bigint) end as depth,
  d.oldest_enqueue_time,
  d.read > d.most as is_estimate
from (
  select
    'transmission_queue'::text as name,
    'broker_private.transmission_messages'::pg_catalog.regclass as relation,
    10000 as most, l.read, l.read as counted,
    (
      select min(o.enqueue_time)
      from broker_private.destinations d
      cross join lateral (
        select t.enqueue_time from broker_private.transmission_messages t
        where t.destination_no = d.destination_no
        order by t.precedence, t.id
        limit 1
      ) o
    ) as oldest_enqueue_time
  from (
    select count(*) as read from (select from broker_private.transmission_messages t limit 10001) r
  ) l
  union all
  select
    'conversation_endpoints',
    'broker_private.endpoints'::pg_catalog.regclass,
    20000, l.read, l.shown,
    null
  from (
    select count(*) as read, count(*) filter (
      where r.local_end is null or r.local_end <> '<cleaned up>' and (
        not r.is_initiator or r.closed_at is null and not exists (
          select from broker_private.far_events f where f.endpoint_no = r.endpoint_no and f.event = '<end acknowledged>'
        )
      )
    ) as shown
    from (
      select e.endpoint_no, e.local_end, e.is_initiator, e.closed_at from broker_private.endpoints e limit 20001
    ) r
  ) l
) d
join pg_catalog.pg_class p on p.oid = d.relation
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE') or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE');

comment on view broker.depths is
'How many messages wait in the transmission queue, and how many sides of conversations there are. Rows only for the database''s owner and members of pg_monitor. Ours.';
comment on column broker.depths.name is 'transmission_queue or conversation_endpoints';
comment on column broker.depths.depth is 'how many: exact up to 10,000 rows of the table, of sides up to 20,000; beyond it an estimate';
comment on column broker.depths.oldest_enqueue_time is 'since when the oldest message waits; NULL where none does';
comment on column broker.depths.is_estimate is 'whether depth comes from the planner''s statistics';
