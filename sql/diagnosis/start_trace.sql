-- Writes what happens to conversations into broker.trace; returns when it ends.
--
-- It watches one conversation, one service's conversations, or all. It replaces the caller's last
-- trace. Commit at once: no message is sent meanwhile.
--
-- Ours, after SQL Server's trace events.
-- Locks: of the database's owner, as attach_trace. Another role's trace sees what happens while the
-- owner traces: a small right must neither hold these locks nor make all senders pay.
-- Errors: 9802 bad duration or number of rows, 8426 no such conversation that the role may see,
-- 8423 no such service, 229 no right, 1222 transactions that write messages do not end.
create or replace function broker.start_trace(
  conversation_handle uuid default null, service text default null,
  duration interval default '10 min', max_rows integer default 10000
)
returns timestamp with time zone
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  until timestamp with time zone;
begin
  loop
    until := broker_private.start_trace(
      current_user, conversation_handle, service, duration, max_rows
    );
    exit when until is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return until;
end
$$;

create or replace function broker_private.start_trace(
  caller name, handle uuid, service text, duration interval, row_limit integer
)
returns timestamp with time zone
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  tracer regrole;
  is_owner constant boolean := pg_has_role(caller, 'pg_database_owner', 'USAGE');
  watched uuid;
  traced_service broker_private.services%rowtype;
  began constant timestamp with time zone := broker_private.clock();
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  tracer := broker_private.find_role(caller);
  if coalesce(duration not between interval '1 s' and interval '1 day', true) then
    found := broker_private.refuse(
      9802, format('A trace can''t last %s.', coalesce(duration::text, 'NULL')),
      'Give duration a second at least and a day at most.'
    );
  elsif coalesce(row_limit not between 1 and 1000000, true) then
    found := broker_private.refuse(
      9802, format('A trace can''t have %s rows.', coalesce(row_limit::text, 'NULL')),
      'Give max_rows 1 at least and 1000000 at most.'
    );
  end if;
  if handle is not null then
    select e.conversation_id into watched
    from broker_private.endpoints e
    where e.conversation_handle = handle
      and (is_owner or broker_private.may_receive(caller, e.queue_id));
    if watched is null then
      found := broker_private.refuse(
        8426, format('The conversation handle "%s" is not found.', handle),
        'Trace a conversation of a queue that you may receive from; '
          'broker.conversation_endpoints lists them.'
      );
    end if;
  end if;
  if service is not null then
    traced_service := broker_private.find_service(service);
    if not is_owner then
      perform broker_private.require_receive(caller, traced_service.queue_id);
    end if;
  end if;
  delete from broker_private.traces t where t.role = tracer;
  delete from broker_private.trace_events v where v.role = tracer;
  insert into broker_private.traces (
    role, conversation_id, service_name, started_at, ends_at, max_rows
  )
  values (tracer, watched, service, began, began + duration, row_limit);
  if is_owner then
    perform broker_private.begin_trace();
  elsif not broker_private.is_traced() then
    raise notice 'The trace sees what happens while the owner of the database traces too.';
  end if;
  return began + duration;
end
$$;

comment on function broker.start_trace(uuid, text, interval, integer) is
$$Ours, after SQL Server's trace events: writes down what happens to conversations, for a time, into
broker.trace. It replaces the caller's last trace. Commit at once: no message is sent meanwhile.

conversation_handle: one conversation, both of its sides that are here; NULL is any.
service: conversations from or to this service of the database; NULL is any.
duration: how long, a day at most.
max_rows: how many events at most, a million at most.

Returns: when it ends.
Rights: the database's owner traces all; a role what it may receive, while the owner traces too.
Locks: SHARE ROW EXCLUSIVE on tables of messages, until the owner's transaction ends.
Errors: 229, 1222, 8423, 8426, 9802
Example: select broker.start_trace(duration => '5 min', max_rows => 1000);$$;
