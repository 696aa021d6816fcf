-- Service Broker's counters, as sys.dm_os_performance_counters.
--
-- They are those of Broker Statistics, Broker/DBM Transport and Broker Activation, by SQL Server's
-- names and types.
--
-- cntr_type 65792 is a value as it is; 272696576 counts up: a rate is the difference of two
-- readings. A queue's rows are for who may receive from it; all others, and _Total, for the
-- database's owner and members of pg_monitor. docs/counters.md says what each counts, and which are
-- not there.
-- Plan: PostgreSQL's own statistics of two tables; no message is looked at.
create or replace view broker.dm_os_performance_counters with (security_barrier) as
with statistics (counter_name, cntr_value, cntr_type) as (
  select v.*
  from (
    select
      pg_catalog.pg_stat_get_tuples_inserted('broker_private.messages'::regclass) as enqueued,
      pg_catalog.pg_stat_get_tuples_inserted('broker_private.transmission_messages'::regclass) as sent,
      pg_catalog.pg_stat_get_tuples_deleted('broker_private.transmission_messages'::regclass) as gone,
      (select count(*) from broker.dm_broker_forwarded_messages) as forwarded
  ) t
  cross join lateral (
    values
      ('Enqueued Messages Total', t.enqueued, 65792),
      ('Enqueued Messages/sec', t.enqueued, 272696576),
      ('Enqueued Transmission Msgs/sec', t.sent, 272696576),
      ('Dequeued Transmission Msgs/sec', t.gone, 272696576),
      ('Forwarded Pending Msg Count', t.forwarded, 65792)
  ) v
),
transport (counter_name, cntr_value, cntr_type) as (
  select v.*
  from (
    select
      count(*) as connections,
      coalesce(sum(c.total_bytes_sent), 0)::bigint as bytes_sent,
      coalesce(sum(c.total_bytes_received), 0)::bigint as bytes_received,
      coalesce(sum(c.total_sends), 0)::bigint as sends,
      coalesce(sum(c.total_receives), 0)::bigint as receives,
      coalesce(sum(c.total_fragments_sent), 0)::bigint as fragments_sent,
      coalesce(sum(c.total_fragments_received), 0)::bigint as fragments_received
    from broker.dm_broker_connections c
    where c.state = 4
  ) t
  cross join lateral (
    values
      ('Open Connection Count', t.connections, 65792),
      ('Send I/O Bytes Total', t.bytes_sent, 65792),
      ('Send I/O bytes/sec', t.bytes_sent, 272696576),
      ('Send I/Os/sec', t.sends, 272696576),
      ('Message Fragment Sends/sec', t.fragments_sent, 272696576),
      ('Receive I/O Bytes Total', t.bytes_received, 65792),
      ('Receive I/O bytes/sec', t.bytes_received, 272696576),
      ('Receive I/Os/sec', t.receives, 272696576),
      ('Message Fragment Receives/sec', t.fragments_received, 272696576)
  ) v
),
queues (queue_name, running, started, aborted, limited, invoked) as (
  select c.queue_name, c.tasks_running, c.tasks_started, c.tasks_aborted, c.task_limit_reached, c.stored_procedures_invoked
  from broker.dm_broker_activation_counters c
),
activation (instance_name, counter_name, cntr_value, cntr_type) as (
  select i.queue_name, v.*
  from (
    select q.queue_name, q.running, q.started, q.aborted, q.limited, q.invoked from queues q
    union all
    select
      '_Total', coalesce(sum(q.running), 0)::bigint, coalesce(sum(q.started), 0)::bigint,
      coalesce(sum(q.aborted), 0)::bigint, coalesce(sum(q.limited), 0)::bigint,
      coalesce(sum(q.invoked), 0)::bigint
    from queues q
    where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE')
      or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE')
  ) i
  cross join lateral (
    values
      ('Stored Procedures Invoked/sec', i.invoked, 272696576),
      ('Task Limit Reached', i.limited, 65792),
      ('Task Limit Reached/sec', i.limited, 272696576),
      ('Tasks Aborted/sec', i.aborted, 272696576),
      ('Tasks Running', i.running, 65792),
      ('Tasks Started/sec', i.started, 272696576)
  ) v
)
select
  'SQLServer:Broker Statistics'::text as object_name,
  s.counter_name,
  pg_catalog.current_database()::text as instance_name,
  s.cntr_value,
  s.cntr_type
from statistics s
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE') or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE')
union all
select 'SQLServer:Broker/DBM Transport', t.counter_name, '', t.cntr_value, t.cntr_type
from transport t
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE') or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE')
union all
select 'SQLServer:Broker Activation', a.counter_name, a.instance_name, a.cntr_value, a.cntr_type
from activation a;

comment on view broker.dm_os_performance_counters is
'Broker Statistics, Broker/DBM Transport and Broker Activation by SQL Server''s names and types: docs/counters.md says what each counts. A queue''s rows are for who may receive from it, all others for the database''s owner and members of pg_monitor.';
comment on column broker.dm_os_performance_counters.object_name is 'of the group of counters';
comment on column broker.dm_os_performance_counters.counter_name is 'as SQL Server spells it';
comment on column broker.dm_os_performance_counters.instance_name is 'the database or the queue, _Total, or empty where there is one only';
comment on column broker.dm_os_performance_counters.cntr_value is 'a value, or a count that only rises';
comment on column broker.dm_os_performance_counters.cntr_type is '65792: a value as it is; 272696576: the difference of two readings by the seconds between is the rate';
