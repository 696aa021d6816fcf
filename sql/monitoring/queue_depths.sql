-- How many messages wait in each queue, and since when.
--
-- Exact up to 10,000; beyond that an estimate, so that no queue is scanned. For what is ready it
-- says how densely the ids of the queue's own part of the index lie. It looks at 64 places of each
-- precedence, of 160 ids each. Of what is retained or incomplete it says 10,001 then. Retained are
-- those that RETENTION keeps; incomplete those that RECEIVE will not return before a worker has
-- validated them, or what comes before them.
create or replace view broker.queue_depths with (security_barrier) as
select
  q.name as queue_name,
  case when c.walked <= 10000 then c.counted else greatest(10001, (
    select sum(x.seen * p.size / least(p.size, 160))
    from generate_series(0, 9) as l (precedence)
    cross join lateral (
      select
        (
          select m.id from broker_private.messages m
          where m.queue_id = q.queue_id and m.precedence = l.precedence
          order by m.id
          limit 1
        ) as first,
        (
          select m.id from broker_private.messages m
          where m.queue_id = q.queue_id and m.precedence = l.precedence
          order by m.id desc
          limit 1
        ) + 1 as beyond
      offset 0
    ) e
    cross join generate_series(0, 63) as k (place)
    cross join lateral (
      select (e.beyond - e.first) / 64.0 as size
    ) p
    cross join lateral (
      -- At another part of each place, so that no rhythm of the senders is met.
      select (e.first + p.size * k.place + (p.size - least(p.size, 160)) * (k.place * 0.618 % 1))::bigint as begin
    ) y
    cross join lateral (
      select count(*) as seen from (
        select from broker_private.messages m
        where (m.queue_id, m.precedence, m.id) >= (q.queue_id, l.precedence, y.begin)
          and (m.queue_id, m.precedence, m.id) < (q.queue_id, l.precedence, (y.begin + least(p.size, 160))::bigint)
        order by m.queue_id, m.precedence, m.id
        limit 160
      ) z
    ) x
    -- A comparison with null walks the whole index before PostgreSQL 18.
    where e.first is not null
  )::bigint) end as ready,
  r.counted as retained,
  i.counted as incomplete,
  (
    select min(o.enqueue_time) from (
      select m.enqueue_time from broker_private.messages m
      where m.queue_id = q.queue_id
      order by m.precedence, m.id
      limit 1
    ) o
  ) as oldest_enqueue_time,
  c.walked > 10000 or r.counted > 10000 or i.counted > 10000 as is_estimate
from broker_private.visible_queues q
cross join lateral (
  -- Eight messages a step, by messages_head. A step asks for a range of the whole index, which the planner takes for many
  -- rows, also without statistics. Of queue_id = it would expect few, and read and sort the rest of the queue at each step.
  -- A plain LIMIT of thousands is met so too. One message a step costs eight times the pages. Then one probe of endpoints a
  -- dialog.
  with recursive walk as (
    select (-32768)::smallint as precedence, 0::bigint as id, null::bigint as endpoint_no, 8::bigint as place
    union all
    select n.precedence, n.id, n.endpoint_no, n.place
    from walk w
    cross join lateral (
      select b.precedence, b.id, b.endpoint_no, row_number() over (order by b.queue_id, b.precedence, b.id) as place
      from (
        select m.queue_id, m.precedence, m.id, m.endpoint_no
        from broker_private.messages m
        where (m.queue_id, m.precedence, m.id) > (q.queue_id, w.precedence, w.id) and m.queue_id <= q.queue_id
        order by m.queue_id, m.precedence, m.id
        limit 8
      ) b
    ) n
    where w.place = 8
  )
  select
    coalesce(sum(d.messages), 0)::bigint as walked,
    coalesce(sum(d.messages) filter (where e.endpoint_no is not null), 0)::bigint as counted
  from (
    select w.endpoint_no, count(*) as messages
    from (select w.endpoint_no from walk w limit 10002) w
    where w.endpoint_no is not null
    group by w.endpoint_no
  ) d
  left join lateral (
    select x.endpoint_no from broker_private.endpoints x where x.endpoint_no = d.endpoint_no and x.local_end is null limit 1
  ) e on true
) c
cross join lateral (
  select count(*) as counted from (
    select from broker_private.retained_messages m
    where m.queue_id = q.queue_id
    limit 10001
  ) l
) r
cross join lateral (
  select count(*) as counted from (
    select from broker_private.incomplete_messages m
    where m.queue_id = q.queue_id
    union all
    select from broker_private.early_messages h
    where h.queue_id = q.queue_id
    limit 10001
  ) l
) i
where q.queue_id >= 65536;

comment on view broker.queue_depths is
'How many messages wait in each queue, and since when. Exact up to 10,000; beyond it an estimate of that queue, so that none is scanned. Ours.';
comment on column broker.queue_depths.queue_name is 'a queue that the reader may receive from';
comment on column broker.queue_depths.ready is 'messages that RECEIVE would return';
comment on column broker.queue_depths.retained is 'copies that RETENTION keeps; 10,001 are that or more';
comment on column broker.queue_depths.incomplete is 'messages that wait for a worker to validate them, or what comes before them; 10,001 are that or more';
comment on column broker.queue_depths.oldest_enqueue_time is 'since when the oldest ready message waits; NULL where none does';
comment on column broker.queue_depths.is_estimate is 'whether a number is above 10,000, and so no exact one';
