-- A service program says that it lives and reads a queue.
--
-- pybroker.App does so every five seconds, and with no readers at its end. What has died stays
-- until another program reads the queue, so that diagnose can tell of it.
-- Ours: SQL Server knows only of readers that it started.
-- Locks: the program's own row.
-- A role has 1,000 programs of a queue at most, so that none uses up the others' places.
-- Errors: 208 queue, 229 no RECEIVE on it, 153 arguments, 1,000 programs already.
create or replace function broker.announce_program(
  program_id uuid, queue text, max_queue_readers integer, host text, process_id integer
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.announce_program(current_user, program_id, queue, max_queue_readers, host, process_id);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.announce_program(
  caller name, program uuid, queue_name text, readers integer, host_name text, process integer
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  queue integer;
  right_now constant timestamp with time zone := broker_private.clock();
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  queue := (broker_private.find_queue(queue_name)).queue_id;
  perform broker_private.require_receive(caller, queue);
  if coalesce(
    program is null or readers not between 0 and 32767 or process is null or length(host_name) not between 1 and 255, true
  ) then
    found := broker_private.refuse(
      153, 'A program''s announcement is incomplete.',
      'Give a program_id, max_queue_readers from 0 to 32,767, a host of 1 to 255 characters, and a process_id.'
    );
  elsif host_name ~ E'[\\x01-\\x1f\\x7f-\\x9f]' then
    found := broker_private.refuse(
      153, 'The host of a program has control characters.', 'Give a name that a terminal can show, as of a host in DNS.'
    );
  elsif readers = 0 then
    delete from broker_private.service_programs p where p.program_id = program and p.queue_id = queue;
    return true;
  end if;
  update broker_private.service_programs p
  set max_queue_readers = readers, last_seen = right_now
  where p.program_id = program and p.queue_id = queue;
  if found then
    return true;
  end if;
  delete from broker_private.service_programs p
  where p.ctid = any (array(
    select x.ctid from broker_private.service_programs x
    where x.queue_id = queue and x.last_seen <= right_now - interval '15 s'
    for update skip locked
  ));
  if (select count(*) >= 1000 from broker_private.service_programs p where p.queue_id = queue and p.role_name = caller) then
    found := broker_private.refuse(
      153, format('The role "%s" has 1000 programs of the queue "%s" already.', caller, queue_name), 'Give one of them more readers.'
    );
  end if;
  insert into broker_private.service_programs (program_id, queue_id, max_queue_readers, host, process_id, started_at, last_seen, role_name)
  values (program, queue, readers, host_name, process, right_now, right_now, caller)
  on conflict do nothing;
  return true;
end
$$;

comment on function broker.announce_program(uuid, text, integer, text, integer) is
$$Ours: a service program says that it lives and reads a queue, as pybroker.App does every five
seconds. Who says nothing for 15 seconds is taken for dead.

program_id: a random number of its own, which nobody else learns.
queue: that it reads.
max_queue_readers: how many readers it has; 0 at its end.
host: where it runs, without control characters.
process_id: of the process there.

Rights: RECEIVE on the queue.
Locks: none that others wait for.
Errors: 153, 208, 229
Example: select broker.announce_program(gen_random_uuid(), 'warehouse', 4, 'app1', 4711);$$;
