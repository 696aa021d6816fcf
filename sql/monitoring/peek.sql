-- The messages that RECEIVE takes next, a page at a time, without locking or removing any.
--
-- The next page begins behind priority and queuing order of the last row. Ours: SQL Server selects
-- from the queue.
-- Locks: none.
-- Plan: messages_head from where the page begins, or from the queue's floors. A probe of endpoints
-- for each message; at most 10,000 are looked at. It does not depend on statistics: of a table that
-- was never analyzed the planner believes that it is empty. Then a page of a view reads the whole
-- queue.
-- Errors: 208 queue, 229, 153 a number out of range.
create or replace function broker.peek(
  queue text, top integer default 50, after_priority integer default null, after_order bigint default null,
  body_bytes integer default 0
)
returns table (
  priority smallint, queuing_order bigint, conversation_handle uuid, conversation_group_id uuid,
  service_name text, message_type_name text, message_enqueue_time timestamp with time zone,
  body_size bigint, body_start bytea
)
language plpgsql
rows 50
set search_path = pg_catalog, pg_temp
as $$
declare
  page jsonb;
  done boolean;
begin
  loop
    page := broker_private.peek(current_user, queue, top, after_priority, after_order, body_bytes);
    exit when page is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return query
  select m.priority, m.queuing_order, m.conversation_handle, m.conversation_group_id, m.service_name,
    m.message_type_name, m.message_enqueue_time, m.body_size, m.body_start
  from jsonb_to_recordset(page) m (
    priority smallint, queuing_order bigint, conversation_handle uuid, conversation_group_id uuid,
    service_name text, message_type_name text, message_enqueue_time timestamp with time zone,
    body_size bigint, body_start bytea
  )
  order by m.priority desc, m.queuing_order;
end
$$;

create or replace function broker_private.peek(
  caller name, queue_name text, top integer, after_priority integer, after_order bigint, body_bytes integer
)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set jit = off
as $$
declare
  stack text;
  this broker_private.queues%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_queue(queue_name);
  perform broker_private.require_receive(caller, this.queue_id);
  if coalesce(top not between 1 and 100, true) then
    found := broker_private.refuse(
      153, format('top is %s.', coalesce(top::text, 'NULL')), 'Give a number of messages from 1 to 100.'
    );
  elsif coalesce(body_bytes not between 0 and 65536, true) then
    found := broker_private.refuse(
      153, format('body_bytes is %s.', coalesce(body_bytes::text, 'NULL')),
      'Give a number of bytes from 0 to 65,536.'
    );
  elsif after_priority is null <> (after_order is null) or after_priority not between 1 and 10 or after_order < 0 then
    found := broker_private.refuse(
      153, 'after_priority and after_order are no place in a queue.',
      'Give both as the last row of the page before has them, or none of them.'
    );
  end if;
  return (
    select coalesce(jsonb_agg(p.message), '[]')
    from (
      select jsonb_build_object(
        'priority', 10 - m.precedence,
        'queuing_order', m.id,
        'conversation_handle', e.conversation_handle,
        'conversation_group_id', g.conversation_group_id,
        'service_name', coalesce(s.name, s.dropped_name),
        'message_type_name', y.name,
        'message_enqueue_time', m.enqueue_time,
        'body_size', coalesce(m.shared_size, octet_length(m.body)),
        'body_start', case when body_bytes > 0 then (
          case when m.shared_body_no is null then substr(m.body, 1, body_bytes) else (
            select substr(b.body, 1, body_bytes)
            from broker_private.shared_bodies b
            where b.shared_body_no = m.shared_body_no
          ) end
        ) end
      ) as message
      from (
        select h.precedence, h.id, h.endpoint_no, h.message_type_id, h.enqueue_time, h.body, h.shared_body_no, h.shared_size
        from unnest(broker_private.floors_of(this.queue_id)) with ordinality as l (floor, level)
        cross join lateral (
          select x.precedence, x.id, x.endpoint_no, x.message_type_id, x.enqueue_time, x.body, x.shared_body_no, x.shared_size
          from broker_private.messages x
          where x.queue_id = this.queue_id and x.precedence = l.level - 1 and x.id >= l.floor
            and x.id > case l.level when 11 - after_priority then after_order else -1 end
          order by x.id
          limit 10000
        ) h
        where after_priority is null or l.level >= 11 - after_priority
        limit 10000
      ) m
      cross join lateral (
        select x.conversation_handle, x.group_no, x.service_id
        from broker_private.endpoints x
        where x.endpoint_no = m.endpoint_no and x.local_end is null
        limit 1
      ) e
      cross join lateral (
        select x.conversation_group_id from broker_private.groups x where x.group_no = e.group_no limit 1
      ) g
      cross join lateral (
        select x.name, x.dropped_name from broker_private.services x where x.service_id = e.service_id limit 1
      ) s
      cross join lateral (
        select x.name from broker_private.message_types x where x.message_type_id = m.message_type_id limit 1
      ) y
      limit top
    ) p
  );
end
$$;

comment on function broker.peek(text, integer, integer, bigint, integer) is
$$Ours: the messages that RECEIVE takes next, a page at a time, without locking or removing any.

queue: whose messages are meant.
top: how many at most, from 1 to 100.
after_priority: where the page begins: priority of the last row of the page before; NULL for the
  first page.
after_order: and its queuing_order.
body_bytes: how much of each body to return, from 0 to 65,536.

Returns: a row for each message, in the order of priority and queuing order. body_size is that of
  the whole body, NULL for none. At most 10,000 messages are looked at.
Rights: RECEIVE on the queue.
Locks: none.
Errors: 153, 208, 229
Example: select queuing_order, message_type_name from broker.peek('warehouse', top => 10);$$;
