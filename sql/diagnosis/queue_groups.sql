-- The conversation groups whose messages RECEIVE takes next, and who holds them.
--
-- Ours: SQL Server shows locks only.
-- Locks: none.
-- Plan: messages_head from the queue's floors, at most 1,000 messages, with a probe of endpoints
-- and groups for each. Then one look at pg_locks.
-- Errors: 208 queue, 229.
create or replace function broker.queue_groups(queue text)
returns table (
  conversation_group_id uuid, messages bigint, oldest_enqueue_time timestamp with time zone, pid integer,
  role_name name, state text, held_since timestamp with time zone, query text
)
language plpgsql
rows 50
set search_path = pg_catalog, pg_temp
as $$
declare
  found_ones jsonb;
  done boolean;
begin
  loop
    found_ones := broker_private.queue_groups(current_user, queue);
    exit when found_ones is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return query
  select g.conversation_group_id, g.messages, g.oldest_enqueue_time, g.pid, g.role_name, g.state, g.held_since, g.query
  from rows from (
    jsonb_to_recordset(found_ones) as (
      conversation_group_id uuid, messages bigint, oldest_enqueue_time timestamp with time zone, pid integer,
      role_name name, state text, held_since timestamp with time zone, query text
    )
  ) with ordinality g (
    conversation_group_id, messages, oldest_enqueue_time, pid, role_name, state, held_since, query, place
  )
  order by g.place;
end
$$;

create or replace function broker_private.queue_groups(caller name, queue_name text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  stack text;
  this broker_private.queues%rowtype;
  is_all boolean;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_queue(queue_name);
  perform broker_private.require_receive(caller, this.queue_id);
  is_all := broker_private.sees_all(caller);
  return (
    with waiting as materialized (
      select m.precedence, m.id, e.group_no, m.enqueue_time
      from (
        select h.precedence, h.id, h.endpoint_no, h.enqueue_time
        from unnest(broker_private.floors_of(this.queue_id)) with ordinality as l (floor, level)
        cross join lateral (
          select x.precedence, x.id, x.endpoint_no, x.enqueue_time
          from broker_private.messages x
          where x.queue_id = this.queue_id and x.precedence = l.level - 1 and x.id >= l.floor
          order by x.id
          limit 1000
        ) h
        limit 1000
      ) m
      cross join lateral (
        select x.group_no from broker_private.endpoints x
        where x.endpoint_no = m.endpoint_no and x.local_end is null
        limit 1
      ) e
    ),
    first_groups as materialized (
      select w.group_no, count(*) as messages, min(w.enqueue_time) as oldest,
        min(w.precedence) as level, min(w.id) as id
      from waiting w
      group by w.group_no
      order by min(w.precedence), min(w.id)
      limit 50
    ),
    -- A group's lock stands on its row: whoever has it is a transaction that runs.
    running as materialized (
      select l.transactionid, a.pid, a.usename, a.state, a.xact_start, left(a.query, 200) as query
      from pg_locks l
      join pg_stat_activity a on a.pid = l.pid
      where l.locktype = 'transactionid' and l.granted and l.mode = 'ExclusiveLock'
    )
    select coalesce(jsonb_agg(jsonb_build_object(
      'conversation_group_id', g.conversation_group_id,
      'messages', f.messages,
      'oldest_enqueue_time', f.oldest,
      'pid', r.pid,
      'role_name', r.usename,
      'state', r.state,
      'held_since', r.xact_start,
      'query', case when is_all then r.query end
    ) order by f.level, f.id), '[]')
    from first_groups f
    cross join lateral (
      select x.conversation_group_id, x.xmax from broker_private.groups x where x.group_no = f.group_no limit 1
    ) g
    left join running r on r.transactionid = g.xmax
  );
end
$$;

comment on function broker.queue_groups(text) is
$$Ours: the conversation groups whose messages RECEIVE takes next, and who holds them: a group that a
session holds is passed by.

queue: whose groups are meant.

Returns: a row for each group of the first 1,000 messages, at most 50 of them, those first that come
  first. messages is how many of these 1,000 it has. pid, role_name, state and held_since are of the
  session that holds the group, since its transaction began; NULL if none does. query is what it ran
  last, for the database's owner, members of pg_monitor and workers only.
Rights: RECEIVE on the queue.
Locks: none.
Errors: 208, 229
Example: select conversation_group_id, pid, held_since from broker.queue_groups('warehouse');$$;
