-- The queues' monitors, as sys.dm_broker_queue_monitors.
--
-- They are of queues whose activation is on, or that have a QUEUE_ACTIVATION notification. The time
-- of the last empty RECEIVE is that which the monitor acted on, or up to a second older.
-- tasks_waiting: sessions that have run RECEIVE in their transaction and written nothing yet, so
-- they wait in it. The query around the UNION ALL is the barrier's: queue_messages says why.
create or replace view broker.dm_broker_queue_monitors with (security_barrier) as
-- Once for all queues: PostgreSQL has no index of its locks.
with waiting as materialized (
  select l.relation, count(distinct l.pid)::integer as sessions
  from pg_catalog.pg_locks l
  where l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
    and l.relation in (select q.receive_marks::oid from broker_private.queues q)
    and l.pid not in (select x.pid from pg_catalog.pg_locks x where x.locktype = 'transactionid' and x.pid is not null)
    -- A worker's look at the monitor takes the same lock.
    and not exists (select from pg_catalog.pg_stat_get_activity(l.pid) a where a.application_name = 'pybroker worker')
  group by l.relation
)
select
  m.database_id, m.queue_id, m.state, m.last_empty_rowset_time, m.last_activated_time, m.tasks_waiting
from (
  select
    d.oid as database_id,
    m.queue_id,
    -- Nobody looks at the monitor of a queue that is off, which may have been in any state.
    case when q.is_receive_enabled and not broker_private.is_poisoned(q.queue_id) then m.state else 'INACTIVE' end as state,
    m.last_empty_rowset_time,
    m.last_activated_time,
    coalesce(w.sessions, 0) as tasks_waiting
  from broker_private.queue_monitors m
  join broker_private.queues q on q.queue_id = m.queue_id and q.is_activation_enabled
  join broker_private.visible_queues v on v.queue_id = m.queue_id
  join pg_catalog.pg_database d on d.datname = pg_catalog.current_database()
  left join waiting w on w.relation = q.receive_marks::oid
  where broker_private.broker_problem() is null
  union all
  select
    d.oid,
    w.queue_id,
    case
      when max(l.notified_at) is not null
        and exists (select from broker_private.messages x where x.queue_id = w.queue_id)
        and exists (
          select from broker_private.queues q
          where q.queue_id = w.queue_id and q.is_receive_enabled and not broker_private.is_poisoned(q.queue_id)
        )
        then 'NOTIFIED'
      else 'INACTIVE'
    end,
    null,
    max(l.notified_at),
    0
  from broker_private.watched_queues w
  left join broker_private.notified_queues l
    on l.event_notification_id = w.event_notification_id and l.queue_id = w.queue_id
  join broker_private.visible_queues v on v.queue_id = w.queue_id
  join pg_catalog.pg_database d on d.datname = pg_catalog.current_database()
  where w.event = 'QUEUE_ACTIVATION' and broker_private.broker_problem() is null
  group by d.oid, w.queue_id
) m;

comment on view broker.dm_broker_queue_monitors is
'The monitors of queues whose activation is on, or that have a QUEUE_ACTIVATION notification, as sys.dm_broker_queue_monitors.';
comment on column broker.dm_broker_queue_monitors.database_id is 'pg_database''s oid of this database';
comment on column broker.dm_broker_queue_monitors.queue_id is 'the queue that is watched';
comment on column broker.dm_broker_queue_monitors.state is 'INACTIVE: nothing to receive, or the queue is off, NOTIFIED: a reader was started and has not received yet, or RECEIVES_OCCURRING';
comment on column broker.dm_broker_queue_monitors.last_empty_rowset_time is 'when a RECEIVE last found nothing, or up to a second earlier';
comment on column broker.dm_broker_queue_monitors.last_activated_time is 'when a reader was last started';
comment on column broker.dm_broker_queue_monitors.tasks_waiting is 'sessions that wait in a RECEIVE on the queue';
