-- Findings 115 and 210: a session that holds a conversation group which is waited for.
--
-- Others wait for it in a statement (115), or its messages come first in a queue (210). Of one
-- endpoint: whoever holds its group now, or the far side's. Else only those that began a minute
-- ago. A group's lock stands on its row: whoever has it is a transaction that runs.
-- Plan: the locks of this server, once; a waiting session's tuple lock names the group's row.
create or replace function broker_private.holder_findings(reader name, endpoint bigint)
returns setof jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  this record;
  is_all constant boolean := broker_private.sees_all(reader);
  right_now constant timestamp with time zone := broker_private.clock();
begin
  for this in
    with locks as materialized (
      select l.locktype, l.transactionid, l.pid, l.granted, l.mode, l.relation, l.database, l.page, l.tuple
      from pg_locks l
      where l.locktype in ('tuple', 'transactionid')
    ),
    waited_for as materialized (
      select format('(%s,%s)', l.page, l.tuple)::tid as location, count(*) as sessions
      from locks l
      where l.locktype = 'tuple' and l.relation = 'broker_private.groups'::regclass
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
      group by l.page, l.tuple
    ),
    looked_at as (
      select g.ctid as location from waited_for w
      join broker_private.groups g on g.ctid = w.location
      where endpoint is null
      union
      select g.ctid
      from broker_private.diagnosed_queues(reader, null) v (queue_id)
      cross join lateral (
        select m.group_no
        from unnest(broker_private.diagnosed_floors(v.queue_id)) with ordinality as l (floor, level)
        cross join lateral (
          select x.group_no from broker_private.messages x
          where x.queue_id = v.queue_id and x.precedence = l.level - 1 and x.id >= l.floor
          order by x.id
          limit 1
        ) m
        limit 1
      ) f
      join broker_private.groups g on g.group_no = f.group_no
      where endpoint is null
      union
      select g.ctid
      from broker_private.endpoints e
      join broker_private.endpoints f on f.conversation_id = e.conversation_id
      join broker_private.groups g on g.group_no = f.group_no
      where e.endpoint_no = endpoint
    ),
    held as (
      select a.pid, a.usename, a.state, a.xact_start, left(a.query, 100) as query, g.group_no, g.queue_id,
        coalesce(w.sessions, 0) as sessions
      from looked_at o
      join broker_private.groups g on g.ctid = o.location
      join locks l on l.locktype = 'transactionid' and l.granted and l.mode = 'ExclusiveLock'
        and l.transactionid = g.xmax
      join pg_stat_activity a on a.pid = l.pid
      left join waited_for w on w.location = g.ctid
      where (endpoint is not null or a.xact_start < right_now - interval '1 min')
        and (is_all or broker_private.may_receive(reader, g.queue_id))
    )
    select
      h.pid, h.usename, h.state, h.xact_start, h.query, sum(h.sessions) as sessions, count(*) as groups,
      least(sum(m.messages), 10001) as messages,
      (array_agg(q.name order by h.group_no) filter (where m.messages > 0))[1] as queue,
      (
        select x.conversation_handle from broker_private.endpoints x
        where x.group_no = min(h.group_no) and x.local_end is null
        order by x.endpoint_no
        limit 1
      ) as handle
    from held h
    join broker_private.queues q on q.queue_id = h.queue_id
    cross join lateral broker_private.messages_waiting(h.queue_id, h.group_no) m (messages)
    group by h.pid, h.usename, h.state, h.xact_start, h.query
    order by h.xact_start
    limit 1000
  loop
    return next jsonb_build_object('messages', this.messages) || broker_private.finding(
      case when this.sessions = 0 and this.queue is not null then 210 else 115 end,
      case when this.xact_start < right_now - interval '1 min' then 'warning' else 'information' end,
      case when this.sessions = 0 then coalesce(this.queue, this.handle::text) else this.handle::text end,
      format(
        'The session with pid %s of "%s" (%s) holds %s, and %s sessions wait for it%s', this.pid, this.usename, this.state,
        case when this.groups > 1 then format('%s conversation groups', this.groups)
          when this.sessions = 0 and this.queue is not null
          then format('the conversation group that comes first in the queue "%s"', this.queue)
          else 'the conversation''s group' end,
        this.sessions, case when is_all then ': ' || this.query else '.' end
      ),
      'Nobody else sends on its conversations, receives from them or ends them before that transaction ends.',
      since => this.xact_start,
      mend => format('select pg_terminate_backend(%s)', this.pid), mend_role => this.usename,
      is_destructive => true
    );
  end loop;
end
$$;
