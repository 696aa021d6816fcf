-- Findings 101 to 111, 114 and 117: what concerns the broker of this database as a whole.
-- Plan: a probe for each destination and each queue; the sessions and prepared transactions of this
-- server.
create or replace function broker_private.broker_findings(reader name, endpoint bigint)
returns setof jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  this record;
  problem_text text := broker_private.broker_problem();
  is_all constant boolean := broker_private.sees_all(reader);
  database_owner constant name := (
    select pg_get_userbyid(d.datdba) from pg_database d where d.datname = current_database()
  );
  right_now constant timestamp with time zone := broker_private.clock();
  waiting_since timestamp with time zone;
begin
  if starts_with(problem_text, '9773') then
    -- Which of the two it is nobody can see from here. The other one would lose messages.
    return query
    select broker_private.finding(
      102, 'error', current_database(), problem_text,
      'Two databases with one broker instance would take each other''s messages, so this one does '
        'nothing. ENABLE_BROKER if it takes the place of the other for good, as after a restore: its '
        'conversations go on. NEW_BROKER if the other lives on: this one''s conversations are dropped.',
      mend => format('select broker.alter_broker(%L)', way), mend_role => database_owner,
      is_destructive => true
    )
    from unnest(array['ENABLE_BROKER', 'NEW_BROKER']) way;
    return;
  elsif problem_text is not null then
    return next broker_private.finding(
      101, 'error', current_database(), problem_text,
      'Nothing is sent, delivered or activated. Every message waits.',
      mend => 'select broker.alter_broker(''ENABLE_BROKER'')', mend_role => database_owner
    );
  end if;

  -- What only a worker moves; a worker that restarts is not missed at once.
  if problem_text is null and not broker_private.has_worker() and not pg_is_in_recovery() then
    select min(w.since) into waiting_since
    from (
      select f.enqueue_time as since
      from broker_private.destinations d
      cross join lateral (
        select t.enqueue_time, t.endpoint_no from broker_private.transmission_messages t
        where endpoint is null and t.destination_no = d.destination_no
        order by t.precedence, t.id
        limit 1
      ) f
      join broker_private.endpoints e on e.endpoint_no = f.endpoint_no
      where e.path = '<remote>' and (is_all or broker_private.may_receive(reader, e.queue_id))
      union all
      (
        select t.enqueue_time
        from broker_private.transmission_messages t
        join broker_private.endpoints e on e.endpoint_no = t.endpoint_no
        where t.endpoint_no = endpoint and e.path = '<remote>'
        order by t.id
        limit 1
      )
      union all
      (
        select i.enqueue_time from broker_private.incomplete_messages i
        where is_all and endpoint is null and not i.is_checked
        order by i.id
        limit 1
      )
      union all
      (
        select i.enqueue_time
        from broker_private.endpoints e
        join broker_private.incomplete_messages i on i.endpoint_no = e.far_endpoint_no
        where e.endpoint_no = endpoint and not i.is_checked
        order by i.id
        limit 1
      )
      union all
      select c.fires_at from broker_private.conversation_timers c
      where c.fires_at < right_now and c.endpoint_no = endpoint
      union all
      select t.fires_at from broker_private.timed_queues() t
      where t.fires_at < right_now and is_all and endpoint is null
      union all
      select f.enqueue_time
      from broker_private.diagnosed_queues(reader, endpoint) v (queue_id)
      join broker_private.queues q on q.queue_id = v.queue_id
      cross join lateral (
        select m.enqueue_time from broker_private.messages m
        where m.queue_id = q.queue_id
        order by m.precedence, m.id
        limit 1
      ) f
      where q.is_activation_enabled and q.activation_procedure is not null and q.is_receive_enabled
    ) w;
    if waiting_since < right_now - interval '30 s' or endpoint is not null
      and waiting_since is not null then
      return next broker_private.finding(
        103, 'error', current_database(), 'No worker serves this database.',
        'Messages to other databases, activation, timers and XML schemas need one.',
        -- What died has left a row; what was stopped has left none.
        since => coalesce((select max(w.last_seen) from broker_private.workers w), waiting_since),
        mend => 'pybroker worker --database-url URL',
          mend_role => database_owner
      );
    end if;
  end if;
  if endpoint is not null or not is_all then
    return;
  end if;

  for this in
    select t.name, t.last_failure, t.last_error from broker_private.periodic_tasks t
    where t.last_failure >= t.last_run
    order by t.last_failure
  loop
    return next broker_private.finding(
      117, case when this.last_error ilike '%no space left%' then 'error' else 'warning' end, this.name,
      format('The worker''s task "%s" fails: %s', this.name, this.last_error),
      'What it is there for, broker.periodic_tasks says. The worker tries it again by itself.',
      since => this.last_failure, mend_role => database_owner
    );
  end loop;
  for this in
    select p.gid, p.prepared, p.owner from pg_prepared_xacts p
    where p.database = current_database() and p.prepared < right_now - interval '5 min'
    order by p.prepared limit 1000
  loop
    return next broker_private.finding(
      104, 'warning', this.gid, format('The prepared transaction "%s" was neither committed nor '
        'rolled back.', this.gid),
      'It keeps its conversation groups locked, and no vacuum removes what was deleted since. '
        'COMMIT PREPARED or ROLLBACK PREPARED: only its transaction manager knows which.',
      since => this.prepared,
      mend => format('rollback prepared %L', this.gid), mend_role => this.owner,
        is_destructive => true
    );
  end loop;
  for this in
    select a.pid, a.usename, a.state, a.xact_start, left(a.query, 100) as query
    from pg_stat_activity a
    where a.datname = current_database() and a.backend_xmin is not null
      and a.backend_type = 'client backend'
      and a.xact_start < right_now - interval '10 min' and a.pid <> pg_backend_pid()
    order by a.xact_start limit 1000
  loop
    return next broker_private.finding(
      105, 'warning', format('pid %s', this.pid),
      format('A transaction of "%s" (%s) keeps an old snapshot: %s', this.usename, this.state,
        this.query),
      'No vacuum removes what was deleted since: RECEIVE gets slower and the tables grow.',
      since => this.xact_start,
      mend => format('select pg_terminate_backend(%s)', this.pid), mend_role => this.usename,
        is_destructive => true
    );
  end loop;
  for this in
    select c.relname
    from pg_class c
    where c.relnamespace = 'broker_private'::regnamespace and c.relkind = 'r'
      and exists (
        select from unnest(c.reloptions) o where o in ('autovacuum_enabled=false',
          'autovacuum_enabled=off')
      )
  loop
    return next broker_private.finding(
      106, 'warning', this.relname, format('Autovacuum is off for the table "%s".', this.relname),
      'Deleted messages stay in the table and in its indexes: both grow without limit.',
      mend => format('alter table broker_private.%I reset (autovacuum_enabled)', this.relname),
      mend_role => database_owner
    );
  end loop;
  for this in
    select
      p.pubname, pg_get_userbyid(p.pubowner) as owner,
      case
        when p.puballtables then format(
          'drop publication %I; create publication %I for tables in schema %s', p.pubname, p.pubname,
          coalesce(
            (
              select string_agg(distinct format('%I', t.schemaname), ', ')
              from pg_publication_tables t
              where t.pubname = p.pubname and t.schemaname not in ('broker', 'broker_private')
            ),
            'public'
          )
        )
        when exists (
          select from pg_publication_namespace n
          where n.pnpubid = p.oid and n.pnnspid = 'broker_private'::regnamespace
        ) then format('alter publication %I drop tables in schema broker_private', p.pubname)
        else format(
          'alter publication %I drop table %s', p.pubname,
          (
            select string_agg(r.prrelid::regclass::text, ', ' order by r.prrelid::regclass::text)
            from pg_publication_rel r
            join pg_class c on c.oid = r.prrelid
            where r.prpubid = p.oid and c.relnamespace = 'broker_private'::regnamespace
          )
        )
      end as mend
    from pg_publication p
    where exists (
      select from pg_publication_tables t where t.pubname = p.pubname and t.schemaname = 'broker_private'
    )
    order by p.pubname
    limit 1000
  loop
    return next broker_private.finding(
      114, 'warning', this.pubname, format('The publication "%s" holds the broker''s own tables.', this.pubname),
      'A subscriber without them stops. One that has them gets messages and dialogs that its broker '
        'knows nothing of.',
      mend => this.mend, mend_role => this.owner, is_destructive => true
    );
  end loop;
  if exists (select from broker_private.priorities)
    and not (select b.is_broker_priority_honored from broker_private.broker_instance b
      where b.is_the_only_row)
  then
    return next broker_private.finding(
      107, 'information', current_database(), 'There are broker priorities, and messages to other '
        'brokers leave without regard to them.',
      'A priority counts in the transmission queue only when the database honors it.',
      mend => 'select broker.alter_broker(honor_broker_priority => true)',
        mend_role => database_owner
    );
  end if;
  for this in
    select t.name, t.state, t.owner from broker_private.tcp_endpoint t where t.state <> 'STARTED'
  loop
    return next broker_private.finding(
      108, 'warning', this.name, format('The endpoint "%s" is %s.', this.name, this.state),
      'No other broker can connect, and this one connects to none.',
      mend => format('select broker.alter_endpoint(%L, state => ''STARTED'')', this.name),
      mend_role => pg_get_userbyid(this.owner)
    );
  end loop;
  for this in
    select n.name, array_to_string(n.events, ', ') as events, q.name as queue, n.service_name, n.broker_instance, n.has_fan_in, n.owner,
      broker_private.notification_problem(n) as problem
    from broker_private.event_notifications n
    left join broker_private.queues q on q.queue_id = n.queue_id
  loop
    if this.problem is not null then
      return next broker_private.finding(
        109, 'warning', this.name, format('The event notification "%s" tells nobody any more: %s',
          this.name, this.problem),
        format('What happens to %s starts nothing at the service "%s". Whoever creates it again lends '
            'it a right to SEND to that service, so its owner must.',
          coalesce(format('the queue "%s"', this.queue), 'the queues of this database'), this.service_name),
        mend => case when pg_get_userbyid(this.owner) in (reader, database_owner) then format(
          'select broker.drop_event_notification(%L, %L); select broker.create_event_notification(%L, '
            '%L, %L, %L%s%s)',
          this.name, this.queue, this.name, this.queue, this.events, this.service_name,
          ', broker_instance => ' || quote_literal(this.broker_instance),
          case when this.has_fan_in then ', fan_in => true' end
        ) end,
        mend_role => pg_get_userbyid(this.owner)
      );
    end if;
  end loop;
  for this in
    select c.name, c.problem, c.owner from broker_private.schema_collections c
      where c.problem is not null
  loop
    return next broker_private.finding(
      110, 'error', this.name, format('The schema collection "%s" can''t be used: %s', this.name,
        this.problem),
      'Messages of types with it can''t be validated, so they wait, and their dialogs with them. '
        'Create a collection that a worker can read, and let the type use it: alter_message_type.',
      mend_role => pg_get_userbyid(this.owner)
    );
  end loop;
  for this in
    select o.class, o.name, o.lends
    from (
      select 'MESSAGE TYPE' as class, t.name, t.owner, null as lends
        from broker_private.message_types t
      union all select 'CONTRACT', c.name, c.owner, null from broker_private.contracts c
        where c.name is not null
      union all select 'QUEUE', q.name, q.owner, case
          when q.activation_procedure is not null and q.execute_as is null
          then format('Put the role that is to run %s into the statement.', q.activation_procedure)
        end from broker_private.queues q
      union all select 'SERVICE', s.name, s.owner, 'Put the new owner into the statement: who may '
          'receive from its queue sends with that role''s rights.' from broker_private.services s
        where s.name is not null
      union all select 'ROUTE', r.name, r.owner, null from broker_private.routes r
      union all select 'REMOTE SERVICE '
        'BINDING', b.name, b.owner, null from broker_private.remote_service_bindings b
      union all select 'XML SCHEMA COLLECTION', x.name, x.owner, null
        from broker_private.schema_collections x
    ) o
    where not exists (select from pg_roles r where r.oid = o.owner)
    limit 1000
  loop
    return next broker_private.finding(
      111, 'error', this.name, format('The owner of the %s "%s" is a role that was dropped.',
        lower(this.class), this.name),
      concat_ws(
        ' ', 'Nobody but the owner of the database has an owner''s rights on it; an activated '
          'procedure has no role to run as.', this.lends
      ),
      mend => concat(
        case when this.class = 'QUEUE' and this.lends is not null
          then format('select broker.alter_queue(%L, execute_as => ''ROLE''); ', this.name) end,
        format('select broker.alter_authorization(%L, %L, %L)', this.class, this.name,
          case when this.class = 'SERVICE' then 'ROLE' else database_owner end)
      ),
      mend_role => database_owner
    );
  end loop;
end
$$;
