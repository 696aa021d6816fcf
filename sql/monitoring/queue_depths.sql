-- broker.queue_depths: how many messages wait in each queue, and since when. Exact up to 10,000; beyond that an estimate, from the table's
-- size as the planner knows it, so that no queue is scanned. Retained are those that RETENTION keeps; incomplete messages are not built yet: 0.
create or replace view broker.queue_depths with (security_barrier) as
select
  q.name as queue_name,
  case when c.counted <= 10000 then c.counted else greatest(c.counted, (
    select p.reltuples::bigint from pg_catalog.pg_class p where p.oid = 'broker_private.messages'::pg_catalog.regclass
  )) end as ready,
  case when r.counted <= 10000 then r.counted else greatest(r.counted, (
    select p.reltuples::bigint from pg_catalog.pg_class p where p.oid = 'broker_private.retained_messages'::pg_catalog.regclass
  )) end as retained,
  0::bigint as incomplete,
  (
    select min(o.enqueue_time) from (
      select m.enqueue_time from broker_private.messages m
      where m.queue_id = q.queue_id
      order by m.precedence, m.id
      limit 1
    ) o
  ) as oldest_enqueue_time,
  c.counted > 10000 or r.counted > 10000 as is_estimate
from broker_private.visible_queues q
cross join lateral (
  select count(*) as counted from (
    select from broker_private.messages m
    join broker_private.endpoints e on e.endpoint_no = m.endpoint_no and e.local_end is null
    where m.queue_id = q.queue_id
    limit 10001
  ) l
) c
cross join lateral (
  select count(*) as counted from (
    select from broker_private.retained_messages m
    where m.queue_id = q.queue_id
    limit 10001
  ) l
) r
where q.queue_id >= 65536;
