-- Findings 201 to 211: queues that are off, their activation, and those that nobody reads.
-- Plan: a few probes by index for each queue. Messages are counted where there is a finding.
create or replace function broker_private.queue_findings(reader name, endpoint bigint)
returns setof jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  this record;
  right_now constant timestamp with time zone := broker_private.clock();
  is_standby constant boolean := pg_is_in_recovery();
  has_worker constant boolean := broker_private.has_worker();
  -- Once for all queues: PostgreSQL has no index of its locks.
  running constant xid[] := array(
    select l.transactionid from pg_locks l
    where l.locktype = 'transactionid' and l.granted and l.mode = 'ExclusiveLock'
  );
  turn_on text;
  waiting jsonb;
  fault integer;
  runner regrole;
  procedure_name text;
  procedure_owner name;
  failure record;
  program record;
  readers bigint;
  problem text;
begin
  -- That no message leaves or comes has one cause, and is told once.
  if broker_private.broker_problem() is not null then
    return;
  end if;
  for this in
    select
      q.queue_id, q.name, q.modify_date, q.view_schema, q.owner, q.execute_as, q.activation_procedure,
      q.is_activation_enabled, q.max_readers, m.is_stuck or m.returns_in_vain > 0 as fails_now,
      m.last_activated_time, not (q.is_receive_enabled and q.is_enqueue_enabled) as is_off,
      broker_private.is_poisoned(q.queue_id) as is_poisoned, pg_get_userbyid(q.owner) as owner_name,
      f.since, (
        select g.xmax = any (running) from broker_private.groups g where g.group_no = f.group_no
      ) as is_held
    from broker_private.diagnosed_queues(reader, endpoint) v (queue_id)
    join broker_private.queues q on q.queue_id = v.queue_id
    left join broker_private.queue_monitors m on m.queue_id = q.queue_id
    left join lateral (
      -- The first of each precedence.
      select min(x.enqueue_time) as since, (array_agg(x.group_no order by l.level))[1] as group_no
      from unnest(broker_private.diagnosed_floors(q.queue_id)) with ordinality as l (floor, level)
      cross join lateral (
        select m.enqueue_time, m.group_no from broker_private.messages m
        where m.queue_id = q.queue_id and m.precedence = l.level - 1 and m.id >= l.floor
        order by m.id
        limit 1
      ) x
    ) f on true
  loop
    turn_on := format('select broker.alter_queue(%L, status => true)', this.name);
    waiting := '{}';
    if this.is_poisoned or this.since <= right_now - interval '5 min' then
      waiting := jsonb_build_object('messages', broker_private.messages_waiting(this.queue_id));
    end if;
    failure := null;
    select l."time", l.number, l.text into failure
    from broker_private.activation_log l
    where l.queue_id = this.queue_id and l.number in (28087, 28088)
    order by l.id desc
    limit 1;

    if this.is_poisoned then
      problem := coalesce(failure.text, (
        select n.last_error
        from broker_private.noted_failures n
        join broker_private.endpoints e on e.endpoint_no = n.endpoint_no and e.queue_id = this.queue_id
        limit 1
      ));
      return next waiting || broker_private.finding(
        201, 'error', this.name,
        format('The queue "%s" is off: five transactions in a row that received from it rolled back%s',
          this.name, coalesce(': ' || problem, '.')),
        'Nothing is received from it, and messages for it wait with their senders. Mend first what '
          'makes its reader fail' || case when problem is null then ': the log of its program says '
          'that.' else '.' end,
        since => case when this.is_off then this.modify_date end, mend => turn_on,
        mend_role => this.owner_name
      );
      continue;
    elsif this.is_off and exists (
      select
      from broker_private.services s
      join broker_private.destinations d on d.queue_id = this.queue_id or d.destination_no = 0 or d.service_name = s.name
      cross join lateral (
        select t.endpoint_no from broker_private.transmission_messages t
        where t.destination_no = d.destination_no
        order by t.precedence, t.id
        limit 1000
      ) f
      join broker_private.endpoints e on e.endpoint_no = f.endpoint_no and e.far_service = s.name
      where s.queue_id = this.queue_id and e.path = '<delayed>'
    ) then
      return next waiting || broker_private.finding(
        203, 'warning', this.name, format('Messages wait for the queue "%s", which somebody '
          'turned off.', this.name),
        '9749: what is sent to it stays in the transmission queue, and its readers receive '
          'nothing.',
        since => this.modify_date, mend => turn_on, mend_role => this.owner_name
      );
      continue;
    elsif this.is_off then
      return next waiting || broker_private.finding(
        202, 'information', this.name, format('The queue "%s" is off: somebody turned it off.',
          this.name),
        'Nothing is received from it, and messages for it wait with their senders.',
        since => this.modify_date, mend => turn_on, mend_role => this.owner_name
      );
      continue;
    end if;

    if this.activation_procedure is not null and not this.is_activation_enabled then
      return next broker_private.finding(
        205, 'information', this.name, format('The activation of the queue "%s" is off.',
          this.name),
        format('No reader is started; the procedure is %s.', this.activation_procedure),
        mend => format('select broker.alter_queue(%L, activation_status => true)', this.name),
        mend_role => this.owner_name
      );
    elsif this.activation_procedure is not null then
      fault := broker_private.activation_fault(this.queue_id);
      runner := coalesce(this.execute_as, this.owner);
      if fault is not null then
        return next waiting || broker_private.finding(
          204, 'error', this.name,
          format(
            '%s: the activation procedure %s of the queue "%s" %s.', fault,
              this.activation_procedure, this.name,
            case fault when 9614 then 'does not exist' when 9620 then 'is a function'
              else 'has parameters' end
          ),
          'No reader can be started. Create it as a procedure without parameters; the worker then '
            'starts it by itself.',
          mend_role => this.owner_name
        );
        continue;
      elsif not exists (select from pg_roles r where r.oid = runner) then
        return next waiting || broker_private.finding(
          209, 'error', this.name, format('The role that runs the activation procedure of the '
            'queue "%s" was dropped.', this.name),
          format('No reader can be started. Put the role that is to run %s into the statement.',
            this.activation_procedure),
          mend => format('select broker.alter_queue(%L, execute_as => ''ROLE'')', this.name),
          mend_role => this.owner_name
        );
        continue;
      end if;
      procedure_name := broker_private.activation_target(this.activation_procedure,
        this.view_schema);
      select pg_get_userbyid(p.proowner) into procedure_owner
      from pg_proc p
      where p.oid = broker_private.procedure_of(procedure_name);
      if not broker_private.may_run(runner, broker_private.procedure_of(procedure_name)) then
        return next waiting || broker_private.finding(
          206, 'error', this.name,
          format('The role "%s" may not run the activation procedure %s of the queue "%s".',
            pg_get_userbyid(runner), procedure_name, this.name),
          format('Every reader that is started fails at once. The role needs EXECUTE, and USAGE on '
            'the schema: "%s", who owns the procedure, must want that. Or let the queue have another '
              'procedure or role.',
            procedure_owner),
          mend_role => procedure_owner
        );
        continue;
      end if;
      if failure."time" is not null
        and (this.since is not null and this.fails_now or this.since is null and failure."time" >= this.last_activated_time)
      then
        return next waiting || broker_private.finding(
          207, case when this.since is null then 'warning' else 'error' end, this.name,
          format('The activation procedure of the queue "%s" fails: %s', this.name, failure.text),
          concat(
            case when this.since is null then 'No message waits, and what the procedure does after its RECEIVE is not done.'
              else 'Its messages wait.' end,
            ' Mend the procedure; the worker starts it again by itself.'
          ),
          since => failure."time", mend_role => this.owner_name
        );
        continue;
      end if;
      -- Without a worker 103 says so, and a standby's readers are its primary's.
      if this.since is not null and not is_standby and (
        this.max_readers = 0 or has_worker and this.is_held is not true and this.since <= right_now - interval '5 min'
      ) then
        readers := (select count(*) from broker_private.live_tasks t where t.queue_id = this.queue_id and t.has_begun);
        return next waiting || broker_private.finding(
          208, case when this.since <= right_now - interval '5 min' then 'error' else 'warning' end, this.name,
          format('Messages wait in the queue "%s", and of %s readers that its activation may start %s run.',
            this.name, this.max_readers, readers),
          case when readers < this.max_readers then
            'Those that run do not receive, or the next one is not due yet: look at what they do.'
          else 'max_queue_readers allows no more.' end,
          since => this.since,
          mend => case when readers >= this.max_readers then format(
            'select broker.alter_queue(%L, max_queue_readers => %s)', this.name,
            least(greatest(1, 2 * this.max_readers), 32767)
          ) end,
          mend_role => this.owner_name
        );
      end if;
      continue;
    end if;

    if this.since <= right_now - interval '15 s' and this.is_held is not true then
      select p.host, p.process_id, p.last_seen, p.last_seen > right_now - interval '15 s' as is_alive into program
      from broker_private.service_programs p
      where p.queue_id = this.queue_id
      order by p.last_seen desc
      limit 1;
      if not program.is_alive or this.since <= right_now - interval '5 min' then
        return next waiting || broker_private.finding(
          211, case when this.since <= right_now - interval '5 min' and not program.is_alive then 'error' else 'warning' end,
          this.name,
          format(
            case when program.host is null then 'Messages wait in the queue "%s", and no program said that it reads them.'
              when program.is_alive then 'Messages wait in the queue "%s": the program that reads it is too slow: process %s on %s.'
              else 'The program that read the queue "%s" says nothing any more: process %s on %s.' end,
            this.name, program.process_id, program.host
          ),
          case when program.host is null then 'What reads it by SQL announces nothing, and may come yet.'
            when program.is_alive then 'Give it more readers, or start another.'
            else 'Start it again, or another that reads the queue.' end,
          since => coalesce(case when not program.is_alive then program.last_seen end, this.since),
          mend_role => this.owner_name
        );
      end if;
    end if;
  end loop;
end
$$;
