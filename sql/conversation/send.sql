-- hot path
-- broker.send(conversation_handle, message_type, body): SEND ON CONVERSATION. Text is stored as UTF-8; '' is no body.
--
-- A message for this database goes into the far queue, any other into the transmission queue, within the caller's
-- transaction. Nothing is updated: numbers are given by RECEIVE or by the acknowledgement. Whoever sleeps on that queue is woken; a SEND learns
-- from a lock whether anybody does (sleep_on). The plain cases are here; every other (the first message, a refusal, a queue that is off or retains,
-- XML) is told apart by send_slowly: for these path_taken becomes null.
--
-- Each statement reads one table, with as few columns and operators as it can and no sub-select: what PostgreSQL does to set up a join, a column of a
-- node or an operator costs more than the row, and a statement with a sub-select is walked as a whole at each call. No condition is of parameters
-- alone, as that is a plan node of its own. Who is no owner of the database pays for a look at what he was granted; and where something is in
-- unusual_objects, each SEND pays for a look whether it concerns this one.
--
-- The type's number is on the endpoint (plain_types), for which two things must hold: a contract never gets or loses a type, and a type that gets a
-- validation is in unusual_objects as long as it has one (alter_message_type). What is not there is looked up.
--
-- Endpoint and permission are read before the lock, so that senders on one dialog hold it for less. Whether another session has changed the
-- endpoint since is seen, with the lock, from its row being the same version at the same place: in one statement with the lock that would be judged
-- by the snapshot from before the wait. What changed meanwhile of permission is as if the message had been sent just before. Queues, type
-- and far place are looked at under the lock; by then the transaction has its number, and settle_moved, which brings home what lands in an old place,
-- waits for transactions that have one.
--
-- Of a straight dialog (path L) no look at far_events is needed: an EndDialog or Error of the far side comes with its local_end, one for
-- the lifetime comes after expires_at, and whatever else puts an Error on such a dialog must take it off the straight path (alter_broker, drop_contract,
-- place_messages).
-- Locks: the group's row, until the transaction ends; so senders on one dialog take turns, and messages are queued in
-- the order in which they commit. The queue's advisory lock, shared, by trying, until the transaction ends.
-- Plan: endpoint by handle, group, unusual objects (nearly always none: from its first page), endpoint by place, far endpoint or far events: one probe
-- each.
-- Errors: 8426, 8427, 8428, 8429, 8430, 8431, 8432, 8433, 8434, 8459, 229.
create or replace function broker.send(conversation_handle uuid, message_type text default 'DEFAULT', body bytea default '')
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send(current_user, conversation_handle, message_type, body);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker.send(conversation_handle uuid, message_type text, body text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send(current_user, conversation_handle, message_type, convert_to(body, 'UTF8'));
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker.send(conversation_handle uuid, message_type text, body jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send(current_user, conversation_handle, message_type, convert_to(body::text, 'UTF8'));
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker.send(conversation_handle uuid, message_type text, body xml)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send(current_user, conversation_handle, message_type, convert_to(body::text, 'UTF8'));
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.send(caller name, handle uuid, type_name text, content bytea)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
  stack text;
  location tid;
  version xid;
  conversation_group bigint;
  path_taken "char";
  from_queue integer;
  far_endpoint bigint;
  far_queue integer;
  type_id integer;
  is_quiet boolean;
  sleepers_queue integer;
begin
  -- Nearly always all of it holds. One expression, since starting one costs as much as reading a row. The two comparisons are is_entry where messages are
  -- in English; a check keeps the line's number true.
  get diagnostics stack = pg_context;
  if (
    stack collate "C" >= E'PL/pgSQL function broker_private.send(name,uuid,text,bytea) line 17 at GET DIAGNOSTICS\nPL/pgSQL function broker.'
    and stack collate "C" < E'PL/pgSQL function broker_private.send(name,uuid,text,bytea) line 17 at GET DIAGNOSTICS\nPL/pgSQL function broker/'
    and current_setting('transaction_isolation') = 'read committed'
    and octet_length(content) <= broker_private.largest_body()
  ) is not true
  then
    if not broker_private.is_seen(stack, caller) then
      return null;
    end if;
    if current_setting('transaction_isolation') <> 'read committed' or octet_length(content) <= broker_private.largest_body() is not true then
      perform broker_private.send_slowly(caller, handle, type_name, array[content]);
      return true;
    end if;
  end if;

  select e.ctid, e.xmin, e.group_no, e.path, e.queue_id, (e.plain_types ->> type_name)::integer
  into location, version, conversation_group, path_taken, from_queue, type_id
  from broker_private.endpoints e
  where e.conversation_handle = handle and e.local_end is null and e.expires_at > broker_private.clock();
  if type_id is null then
    select c.message_type_id into type_id
    from broker_private.endpoints e
    join broker_private.contract_messages c on c.contract_id = e.contract_id and c.message_type_name = type_name
    where e.ctid = location
      and case c.validation when 'N' then true when 'E' then content = '' end
      and case when e.is_initiator then c.is_sent_by_initiator else c.is_sent_by_target end;
    if not found then
      path_taken := null;
    end if;
  end if;
  if pg_has_role(caller, 'pg_database_owner', 'USAGE') is not true then
    perform from broker_private.permissions p
    where p.class = 'Q' and p.securable_id = from_queue and p.permission = 'RECEIVE'
      and ((p.grantee).role = 0 or pg_has_role(caller, (p.grantee).role, 'USAGE'));
    if not found and not broker_private.may_receive(caller, from_queue) then
      path_taken := null;
    end if;
  end if;
  perform from broker_private.groups g where g.group_no = conversation_group for update;
  perform from broker_private.unusual_objects u where u.ctid >= '(0,0)';
  if found then
    select e.far_endpoint_no into far_endpoint from broker_private.endpoints e where e.ctid = location;
    select f.queue_id into far_queue from broker_private.endpoints f where f.endpoint_no = far_endpoint;
    perform from broker_private.unusual_objects u where u.object_id in (from_queue, far_queue, type_id);
    if found then
      path_taken := null;
    end if;
  end if;

  if path_taken = 'L' then
    select e.far_endpoint_no into far_endpoint from broker_private.endpoints e where e.ctid = location and e.xmin = version;
    insert into broker_private.messages (group_no, endpoint_no, queue_id, message_type_id, precedence, urgency, body)
    select f.group_no, f.endpoint_no, f.queue_id, type_id, smallint '10' - f.priority, 2, nullif(content, '')
    from broker_private.endpoints f
    where f.endpoint_no = far_endpoint and f.local_end is null
    returning queue_id, pg_try_advisory_xact_lock_shared(1886937714, queue_id) into sleepers_queue, is_quiet;
  elsif path_taken = 'R' then
    insert into broker_private.transmission_messages (endpoint_no, destination_no, message_type_id, precedence, kind, body)
    select e.endpoint_no, e.destination_no, type_id, smallint '10' - e.priority, 'M', nullif(content, '')
    from broker_private.endpoints e
    left join broker_private.far_events v on v.endpoint_no = e.endpoint_no and v.event in ('E', 'X')
    where e.ctid = location and e.xmin = version and v.endpoint_no is null
    returning 0, pg_try_advisory_xact_lock_shared(1886937714, 0) into sleepers_queue, is_quiet;
  end if;
  if is_quiet then
    return is_quiet;
  elsif sleepers_queue is null then
    perform broker_private.send_slowly(caller, handle, type_name, array[content]);
  else
    perform broker_private.wake_sleepers(sleepers_queue);
  end if;
  return true;
end
$$;
