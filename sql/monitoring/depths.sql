-- How many messages wait in the transmission queue, and how many sides of conversations there are.
--
-- Exact up to 10,000; beyond that an estimate, from the table's size as the planner knows it, so
-- that nothing is scanned. It counts everybody's, so it has rows only for the database's owner and
-- members of pg_monitor.
create or replace view broker.depths with (security_barrier) as
select
  d.name,
  case when d.counted <= 10000 then d.counted else greatest(d.counted, p.reltuples::bigint) end as depth,
  d.oldest_enqueue_time,
  d.counted > 10000 as is_estimate
from (
  select
    'transmission_queue'::text as name,
    'broker_private.transmission_messages'::pg_catalog.regclass as relation,
    (select count(*) from (select from broker_private.transmission_messages t limit 10001) l) as counted,
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
  union all
  select
    'conversation_endpoints',
    'broker_private.endpoints'::pg_catalog.regclass,
    (select count(*) from (select from broker_private.endpoints e where e.local_end is distinct from '<cleaned up>' limit 10001) l),
    null
) d
join pg_catalog.pg_class p on p.oid = d.relation
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE') or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE');

comment on view broker.depths is
'How many messages wait in the transmission queue, and how many sides of conversations there are. Rows only for the database''s owner and members of pg_monitor. Ours.';
comment on column broker.depths.name is 'transmission_queue or conversation_endpoints';
comment on column broker.depths.depth is 'how many rows: exact up to 10,000, beyond it an estimate';
comment on column broker.depths.oldest_enqueue_time is 'since when the oldest message waits; NULL where none does';
comment on column broker.depths.is_estimate is 'whether depth comes from the planner''s statistics';
