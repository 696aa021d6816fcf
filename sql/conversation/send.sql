-- hot path
-- broker.send(conversation_handle, message_type, body): SEND ON CONVERSATION. Text is stored as UTF-8; '' is no body.
--
-- A message for this database goes into the far queue, any other into the transmission queue, within the caller's
-- transaction. Nothing is updated: numbers are given by RECEIVE or by the acknowledgement. Whoever sleeps on that queue is woken; a SEND learns
-- from a lock whether anybody does (sleep_on). The plain cases are two statements; every
-- other (the first message, a refusal, a queue that is off, XML) is told apart by send_slowly.
--
-- Two statements, because the second must see what the last holder of the lock did before it committed: one statement would
-- insert by the snapshot that it took before it waited.
-- Locks: the group's row, until the transaction ends; so senders on one dialog take turns, and messages are queued in
-- the order in which they commit. The queue's advisory lock, shared, by trying, until the transaction ends.
-- Plan: endpoints by handle, group, contract message, far endpoint, both queues, far events: one index probe each.
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
  endpoint bigint;
  conversation_group bigint;
  path_taken "char";
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

  select e.endpoint_no, e.group_no, e.path into endpoint, conversation_group, path_taken
  from broker_private.endpoints e
  join broker_private.groups g on g.group_no = e.group_no
  where e.conversation_handle = handle and e.path in ('L', 'R')
  for update of g;

  -- No sub-select and nothing volatile in the lists: then PostgreSQL neither walks the whole query at each call nor puts two more nodes
  -- on top. "is not distinct from" is not for an index: a group may have many conversations, so its index is the wrong one.
  if path_taken = 'L' and octet_length(content) <= broker_private.largest_body() then
    insert into broker_private.messages (group_no, endpoint_no, queue_id, message_type_id, precedence, urgency, body)
    select f.group_no, f.endpoint_no, f.queue_id, c.message_type_id, 10 - f.priority, 2, nullif(content, '')
    from broker_private.endpoints e
    join broker_private.contract_messages c on c.contract_id = e.contract_id and c.message_type_name = type_name
    join broker_private.queues q on q.queue_id = e.queue_id
    join broker_private.endpoints f on f.endpoint_no = e.far_endpoint_no
    join broker_private.queues fq on fq.queue_id = f.queue_id
    left join broker_private.far_events v on v.endpoint_no = e.endpoint_no and v.event in ('E', 'X')
    where e.endpoint_no = endpoint and e.group_no is not distinct from conversation_group and e.path = 'L' and e.local_end is null
      and v.endpoint_no is null
      and not q.is_retention_enabled
      and case when e.is_initiator then c.is_sent_by_initiator else c.is_sent_by_target end
      and (c.validation = 'N' or c.validation = 'E' and content = '')
      and fq.is_enqueue_enabled
      and (
        q.owner = caller
        or pg_has_role(caller, 'pg_database_owner', 'USAGE')
        or broker_private.is_permitted(caller, 'RECEIVE', 'Q', q.queue_id, q.owner)
      )
    returning queue_id into sleepers_queue;
  elsif path_taken = 'R' and octet_length(content) <= broker_private.largest_body() then
    insert into broker_private.transmission_messages (endpoint_no, destination_no, message_type_id, precedence, kind, body)
    select e.endpoint_no, e.destination_no, c.message_type_id, 10 - e.priority, 'M', nullif(content, '')
    from broker_private.endpoints e
    join broker_private.contract_messages c on c.contract_id = e.contract_id and c.message_type_name = type_name
    join broker_private.queues q on q.queue_id = e.queue_id
    left join broker_private.far_events v on v.endpoint_no = e.endpoint_no and v.event in ('E', 'X')
    where e.endpoint_no = endpoint and e.group_no is not distinct from conversation_group and e.path = 'R' and e.local_end is null
      and v.endpoint_no is null
      and not q.is_retention_enabled
      and case when e.is_initiator then c.is_sent_by_initiator else c.is_sent_by_target end
      and (c.validation = 'N' or c.validation = 'E' and content = '')
      and (
        q.owner = caller
        or pg_has_role(caller, 'pg_database_owner', 'USAGE')
        or broker_private.is_permitted(caller, 'RECEIVE', 'Q', q.queue_id, q.owner)
      )
    returning 0 into sleepers_queue;
  end if;
  if not coalesce(pg_try_advisory_xact_lock_shared(1886937714, sleepers_queue), false) then
    if sleepers_queue is null then
      perform broker_private.send_slowly(caller, handle, type_name, array[content]);
    else
      perform broker_private.wake_sleepers(sleepers_queue);
    end if;
  end if;
  return true;
end
$$;
