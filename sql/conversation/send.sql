-- hot path
-- broker.send(conversation_handle, message_type, body): SEND ON CONVERSATION. Text is stored as UTF-8; '' is no body.
--
-- A message for this database goes into the far queue, any other into the transmission queue, within the caller's
-- transaction. Nothing is updated: numbers are given by RECEIVE or by the acknowledgement. Whoever sleeps on that queue is woken; a SEND learns
-- from a lock whether anybody does (sleep_on). The plain cases are here; every other (the first message, a refusal, a queue that is off or retains,
-- XML) is told apart by send_slowly.
--
-- Each statement reads one table, with as few operators as it can: what PostgreSQL does to set up a join or an operator costs more than the row.
-- The endpoint is read before the lock, as it names the group; whether another session has changed it since is seen, with the lock, from its row being
-- the same version at the same place. In one statement with the lock that would be judged by the snapshot from before the wait.
--
-- Of a straight dialog (path L) no look at far_events is needed: an EndDialog or Error of the far side comes with its local_end, one for
-- the lifetime comes after expires_at, and whatever else puts an Error on such a dialog must take it off the straight path (alter_broker, drop_contract,
-- place_messages).
-- Locks: the group's row, until the transaction ends; so senders on one dialog take turns, and messages are queued in
-- the order in which they commit. The queue's advisory lock, shared, by trying, until the transaction ends.
-- Plan: endpoint by handle, group, endpoint by place, contract message, far endpoint or far events, unusual queues: one probe each.
-- Errors: 8426, 8427, 8428, 8429, 8430, 8431, 8432, 8433, 8434, 8459, 229.
create or replace function broker.send(conversation_handle uuid, message_type text default 'DEFAULT', body bytea default '')
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  done := broker_private.send(current_user, conversation_handle, message_type, body);
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
  done := broker_private.send(current_user, conversation_handle, message_type, convert_to(body, 'UTF8'));
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
  done := broker_private.send(current_user, conversation_handle, message_type, convert_to(body::text, 'UTF8'));
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
  done := broker_private.send(current_user, conversation_handle, message_type, convert_to(body::text, 'UTF8'));
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
  location tid;
  version xid;
  endpoint bigint;
  conversation_group bigint;
  path_taken "char";
  contract integer;
  from_initiator boolean;
  from_queue integer;
  far_endpoint bigint;
  type_id integer;
  is_quiet boolean;
  sleepers_queue integer;
begin
  -- In READ COMMITTED, called by whom the session runs as, nothing is to be asked (see broker_private.assert_entry). One expression, since
  -- starting one costs as much as reading a row.
  if caller is distinct from session_user or current_setting('role') not in ('none', caller)
    or current_setting('transaction_isolation') <> 'read committed'
  then
    perform broker_private.assert_entry(caller);
    if current_setting('transaction_isolation') <> 'read committed' then
      perform broker_private.send_slowly(caller, handle, type_name, array[content]);
      return true;
    end if;
  end if;

  select e.ctid, e.xmin, e.endpoint_no, e.group_no, e.path, e.contract_id, e.is_initiator, e.queue_id
  into location, version, endpoint, conversation_group, path_taken, contract, from_initiator, from_queue
  from broker_private.endpoints e
  where e.conversation_handle = handle and e.local_end is null and e.expires_at > broker_private.clock()
    and octet_length(content) <= broker_private.largest_body();
  perform from broker_private.groups g where g.group_no = conversation_group for update;

  if path_taken = 'L' then
    select e.far_endpoint_no into far_endpoint from broker_private.endpoints e where e.ctid = location and e.xmin = version;
    select c.message_type_id into type_id
    from broker_private.contract_messages c
    where c.contract_id = contract and c.message_type_name = type_name
      and (c.validation = 'N' or c.validation = 'E' and content = '')
      and case when from_initiator then c.is_sent_by_initiator else c.is_sent_by_target end;
    insert into broker_private.messages (group_no, endpoint_no, queue_id, message_type_id, precedence, urgency, body)
    select f.group_no, f.endpoint_no, f.queue_id, type_id, 10 - f.priority, 2, nullif(content, '')
    from broker_private.endpoints f
    where f.endpoint_no = case when type_id is not null then far_endpoint end and f.local_end is null
      and not exists (select from broker_private.unusual_queues u where u.queue_id in (f.queue_id, from_queue))
      and (pg_has_role(caller, 'pg_database_owner', 'USAGE') or broker_private.may_receive(caller, from_queue))
    returning queue_id, pg_try_advisory_xact_lock_shared(1886937714, queue_id) into sleepers_queue, is_quiet;
  elsif path_taken = 'R' then
    select c.message_type_id into type_id
    from broker_private.contract_messages c
    where c.contract_id = contract and c.message_type_name = type_name
      and (c.validation = 'N' or c.validation = 'E' and content = '')
      and case when from_initiator then c.is_sent_by_initiator else c.is_sent_by_target end;
    insert into broker_private.transmission_messages (endpoint_no, destination_no, message_type_id, precedence, kind, body)
    select e.endpoint_no, e.destination_no, type_id, 10 - e.priority, 'M', nullif(content, '')
    from broker_private.endpoints e
    where e.ctid = case when type_id is not null then location end and e.xmin = version
      and not exists (select from broker_private.far_events v where v.endpoint_no = endpoint and v.event in ('E', 'X'))
      and not exists (select from broker_private.unusual_queues u where u.queue_id = from_queue)
      and (pg_has_role(caller, 'pg_database_owner', 'USAGE') or broker_private.may_receive(caller, from_queue))
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
