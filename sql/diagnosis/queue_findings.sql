-- Findings 201 to 211: queues that are off, their activation, dead programs, and who holds a group.
-- Plan: a few probes by index for each queue.
create or replace function broker_private.queue_findings(reader name, endpoint bigint)
returns setof jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  queue broker_private.queues%rowtype;
  is_all constant boolean := broker_private.sees_all(reader);
  right_now constant timestamp with time zone := broker_private.clock();
  visible integer;
  fault integer;
  runner regrole;
  procedure_name text;
  procedure_owner name;
  is_off boolean;
  owner_name name;
  first_message record;
  holder record;
  failure record;
  program record;
begin
  -- That no message leaves or comes has one cause, and is told once.
  if broker_private.broker_problem() is not null then
    return;
  end if;
  for visible in
    select v.queue_id from broker_private.diagnosed_queues(reader, endpoint) v (queue_id)
  loop
    select q.* into queue from broker_private.queues q where q.queue_id = visible;
    owner_name := pg_get_userbyid(queue.owner);
    is_off := not (queue.is_receive_enabled and queue.is_enqueue_enabled);
    first_message := null;
    select m.enqueue_time, m.group_no into first_message
    from broker_private.messages m
    where m.queue_id = queue.queue_id
    order by m.precedence, m.id
    limit 1;

    if broker_private.is_poisoned(queue.queue_id) then
      return next broker_private.finding(
        201, 'error', queue.name, format('The queue "%s" is off: five transactions in a row that '
          'received from it rolled back.', queue.name),
        'Nothing is received from it, and messages for it wait with their senders. Mend first what '
          'makes its reader fail.',
        since => case when is_off then queue.modify_date end,
        mend => format('select broker.alter_queue(%L, status => true)', queue.name),
          mend_role => owner_name
      );
      continue;
    elsif is_off and exists (
      select
      from broker_private.services s
      join broker_private.destinations d on d.queue_id = queue.queue_id or d.destination_no = 0 or d.service_name = s.name
      cross join lateral (
        select t.endpoint_no from broker_private.transmission_messages t
        where t.destination_no = d.destination_no
        order by t.precedence, t.id
        limit 1000
      ) f
      join broker_private.endpoints e on e.endpoint_no = f.endpoint_no and e.far_service = s.name
      where s.queue_id = queue.queue_id and e.path = '<delayed>'
    ) then
      return next broker_private.finding(
        203, 'warning', queue.name, format('Messages wait for the queue "%s", which somebody '
          'turned off.', queue.name),
        '9749: what is sent to it stays in the transmission queue, and its readers receive '
          'nothing.',
        since => queue.modify_date,
        mend => format('select broker.alter_queue(%L, status => true)', queue.name),
          mend_role => owner_name
      );
      continue;
    elsif is_off then
      return next broker_private.finding(
        202, 'information', queue.name, format('The queue "%s" is off: somebody turned it off.',
          queue.name),
        'Nothing is received from it, and messages for it wait with their senders.',
        since => queue.modify_date,
        mend => format('select broker.alter_queue(%L, status => true)', queue.name),
          mend_role => owner_name
      );
      continue;
    end if;

    if queue.activation_procedure is not null and not queue.is_activation_enabled then
      return next broker_private.finding(
        205, 'information', queue.name, format('The activation of the queue "%s" is off.',
          queue.name),
        format('No reader is started; the procedure is %s.', queue.activation_procedure),
        mend => format('select broker.alter_queue(%L, activation_status => true)', queue.name),
          mend_role => owner_name
      );
    elsif queue.activation_procedure is not null then
      fault := broker_private.activation_fault(queue.queue_id);
      runner := coalesce(queue.execute_as, queue.owner);
      if fault is not null then
        return next broker_private.finding(
          204, 'error', queue.name,
          format(
            '%s: the activation procedure %s of the queue "%s" %s.', fault,
              queue.activation_procedure, queue.name,
            case fault when 9614 then 'does not exist' when 9620 then 'is a function'
              else 'has parameters' end
          ),
          'No reader can be started. Create it as a procedure without parameters; the worker then '
            'starts it by itself.',
          mend_role => owner_name
        );
        continue;
      elsif not exists (select from pg_roles r where r.oid = runner) then
        return next broker_private.finding(
          209, 'error', queue.name, format('The role that runs the activation procedure of the '
            'queue "%s" was dropped.', queue.name),
          format('No reader can be started. Put the role that is to run %s into the statement.',
            queue.activation_procedure),
          mend => format('select broker.alter_queue(%L, execute_as => ''ROLE'')', queue.name),
            mend_role => owner_name
        );
        continue;
      end if;
      procedure_name := broker_private.activation_target(queue.activation_procedure,
        queue.view_schema);
      select pg_get_userbyid(p.proowner) into procedure_owner
      from pg_proc p
      where p.oid = broker_private.procedure_of(procedure_name);
      if not broker_private.may_run(runner, broker_private.procedure_of(procedure_name)) then
        return next broker_private.finding(
          206, 'error', queue.name,
          format('The role "%s" may not run the activation procedure %s of the queue "%s".',
            pg_get_userbyid(runner), procedure_name, queue.name),
          format('Every reader that is started fails at once. The role needs EXECUTE, and USAGE on '
            'the schema: "%s", who owns the procedure, must want that. Or let the queue have another '
              'procedure or role.',
            procedure_owner),
          mend_role => procedure_owner
        );
        continue;
      end if;
      if queue.max_readers = 0 and first_message.enqueue_time is not null then
        return next broker_private.finding(
          208, 'warning', queue.name, format('Messages wait in the queue "%s", and its activation '
            'may start no reader.', queue.name),
          'max_queue_readers is 0.', since => first_message.enqueue_time,
          mend => format('select broker.alter_queue(%L, max_queue_readers => 1)', queue.name),
            mend_role => owner_name
        );
      end if;
      failure := null;
      select l."time", l.number, l.text, l.detail into failure
      from broker_private.activation_log l
      join broker_private.queue_monitors m on m.queue_id = l.queue_id
      where l.queue_id = queue.queue_id and l.number in (28087, 28088)
        and (m.is_stuck or m.returns_in_vain > 0)
      order by l.id desc
      limit 1;
      if failure."time" is not null and first_message.enqueue_time is not null then
        return next broker_private.finding(
          207, 'error', queue.name, format('The activation procedure of the queue "%s" fails: %s',
            queue.name, failure.text),
          'Its messages wait. Mend the procedure; the worker starts it again by itself.',
          since => failure."time", mend_role => owner_name
        );
        continue;
      end if;
    end if;

    if first_message.enqueue_time is not null then
      select p.host, p.process_id, p.last_seen into program
      from broker_private.service_programs p
      where p.queue_id = queue.queue_id
      order by p.last_seen desc
      limit 1;
      if found and greatest(program.last_seen, first_message.enqueue_time) <= right_now - interval '15 s' then
        return next broker_private.finding(
          211, 'warning', queue.name,
          format('The program that read the queue "%s" says nothing any more: process %s on %s.', queue.name,
            program.process_id, program.host),
          'Messages wait, and no other program said that it reads them. Start it again.',
          since => program.last_seen, mend_role => owner_name
        );
      end if;
    end if;

    holder := null;
    if first_message.group_no is not null then
      -- A group's lock stands on its row: whoever has it is a transaction that runs.
      select a.pid, a.usename, a.state, a.xact_start, left(a.query, 100) as query into holder
      from broker_private.groups g
      join pg_locks l on l.locktype = 'transactionid' and l.granted and l.mode = 'ExclusiveLock'
        and l.transactionid = g.xmax
      join pg_stat_activity a on a.pid = l.pid
      where g.group_no = first_message.group_no;
      if holder.pid is not null and (endpoint is not null
        or holder.xact_start < right_now - interval '1 min') then
        return next broker_private.finding(
          210, case when holder.xact_start < right_now - interval '1 min' then 'warning'
            else 'information' end, queue.name,
          format(
            'The conversation group that comes first in the queue "%s" is held by the session with '
              'pid %s of "%s" (%s)%s.',
            queue.name, holder.pid, holder.usename, holder.state, case when is_all
              then ': ' || holder.query else '' end
          ),
          'Nobody else receives the messages of this group before that transaction ends.',
          since => holder.xact_start,
          mend => format('select pg_terminate_backend(%s)', holder.pid), mend_role => holder.usename,
            is_destructive => true
        );
      end if;
    end if;
  end loop;
end
$$;
