-- Finding 115: a session that holds a conversation, with those that wait for it.
--
-- Without an endpoint: groups that others have waited for longer than a minute. Of one endpoint:
-- whoever holds its group now.
-- Plan: the locks of this server; a waiting session's tuple lock names the group's row.
create or replace function broker_private.holder_findings(reader name, endpoint bigint)
returns setof jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  this record;
  is_all constant boolean := broker_private.sees_all(reader);
  right_now constant timestamp with time zone := broker_private.clock();
begin
  for this in
    with waited_for as (
      select format('(%s,%s)', l.page, l.tuple)::tid as location, count(*) as sessions
      from pg_locks l
      where l.locktype = 'tuple' and l.relation = 'broker_private.groups'::regclass
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
      group by l.page, l.tuple
    )
    select
      a.pid, a.usename, a.state, a.xact_start, left(a.query, 100) as query, coalesce(w.sessions, 0) as sessions,
      coalesce(
        (select x.conversation_handle from broker_private.endpoints x where x.endpoint_no = endpoint),
        (
          select x.conversation_handle from broker_private.endpoints x
          where x.group_no = g.group_no and x.local_end is null
          order by x.endpoint_no
          limit 1
        )
      ) as handle
    from broker_private.groups g
    left join waited_for w on w.location = g.ctid
    join pg_locks l on l.locktype = 'transactionid' and l.granted and l.mode = 'ExclusiveLock'
      and l.transactionid = g.xmax
    join pg_stat_activity a on a.pid = l.pid
    where case
        when endpoint is null then
          g.ctid = any (array(select x.location from waited_for x)) and a.xact_start < right_now - interval '1 min'
        else g.group_no = (select x.group_no from broker_private.endpoints x where x.endpoint_no = endpoint)
      end
      and (is_all or broker_private.may_receive(reader, g.queue_id))
    order by a.xact_start
    limit 20
  loop
    return next broker_private.finding(
      115, case when this.xact_start < right_now - interval '1 min' then 'warning' else 'information' end,
      this.handle::text,
      format(
        'The conversation''s group is held by the session with pid %s of "%s" (%s), and %s wait for it%s', this.pid,
        this.usename, this.state, this.sessions, case when is_all then ': ' || this.query else '.' end
      ),
      'Nobody else sends on its conversations, receives from them or ends them before that transaction ends.',
      since => this.xact_start,
      mend => format('select pg_terminate_backend(%s)', this.pid), mend_role => this.usename,
        is_destructive => true
    );
  end loop;
end
$$;
