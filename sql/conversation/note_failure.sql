-- A service program tells that it failed on the conversation, and how.
--
-- It does so in a transaction of its own, after it has rolled back. On a queue with poison_action
-- QUARANTINE the fifth in a row quarantines the conversation; a RECEIVE of it that commits begins
-- anew. Returns whether it is quarantined now. On other queues nothing is noted: those count
-- rollbacks by themselves.
-- With retry_after the conversation is quarantined at once. It leaves quarantine by itself after
-- the first of these pauses, the next time after the second. It stays when all are used up.
--
-- Ours: Service Broker knows of rollbacks only.
-- Locks: the group's row, waiting for whoever has it.
-- Errors: 8426 unknown handle, 153 no text, strange pauses, 229 no RECEIVE on the queue.
create or replace function broker.note_failure(
  conversation_handle uuid, error_text text, retry_after interval[] default null
)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  is_quarantined boolean;
begin
  loop
    is_quarantined := broker_private.note_failure(current_user, conversation_handle, error_text, retry_after);
    exit when is_quarantined is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return is_quarantined;
end
$$;

create or replace function broker_private.note_failure(
  caller name, handle uuid, error_text text, retry_after interval[]
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  stack text;
  e broker_private.endpoints%rowtype;
  failed integer;
  retried integer;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if error_text is null then
    found := broker_private.refuse(153, format('The error of the conversation "%s" is NULL.', handle), 'Say what failed: its text is shown in broker.quarantine.');
  elsif cardinality(retry_after) > 100 or array_ndims(retry_after) > 1 or array_lower(retry_after, 1) <> 1 or exists (
    select from unnest(retry_after) p (pause)
    -- A month is 30 days in one comparison, 30.4 in the other, and what it is only from now on.
    where case
      when p.pause between interval '0' and interval '1 year' and extract(epoch from p.pause) between 0 and 31557600
      then broker_private.clock() + p.pause not between broker_private.clock() - interval '1 s' and broker_private.clock() + interval '366 days'
      else true
    end
  ) then
    found := broker_private.refuse(
      153, 'retry_after is no list of pauses.', 'Give at most 100 intervals, each from 0 to 1 year; none for no retry.'
    );
  end if;
  -- Before the lock, for which somebody without the right must not wait; and behind it, as the queue may have changed.
  select x.* into e from broker_private.endpoints x where x.conversation_handle = handle;
  if found then
    perform broker_private.require_receive(caller, e.queue_id);
  end if;
  e := broker_private.lock_group_of(handle);
  perform broker_private.require_receive(caller, e.queue_id);
  if exists (select from broker_private.quarantine z where z.endpoint_no = e.endpoint_no) then
    return true;
  elsif not exists (
    select from broker_private.queues q
    where q.queue_id = e.queue_id and q.is_poison_message_handling_enabled and q.poison_action = 'QUARANTINE'
  ) then
    return false;
  end if;
  insert into broker_private.noted_failures as n (endpoint_no, failures, last_error)
  values (e.endpoint_no, 1, left(error_text, 3000))
  on conflict (endpoint_no) do update set failures = n.failures + 1, last_error = excluded.last_error
  returning n.failures, n.retries into failed, retried;
  if retry_after is not null then
    return broker_private.quarantine_conversation(
      e.endpoint_no, failed, left(error_text, 3000), null, retry_after[1 + retried]
    );
  end if;
  failed := greatest(
    failed, (select max(f.failures) from broker_private.failing_conversations(e.queue_id) f where f.endpoint_no = e.endpoint_no)
  );
  return failed >= 5 and broker_private.quarantine_conversation(e.endpoint_no, failed, left(error_text, 3000), null, null);
end
$$;

comment on function broker.note_failure(uuid, text, interval[]) is
$$Ours: a service program tells, in a transaction of its own after it rolled back, that it failed.
On a queue with poison_action QUARANTINE the fifth in a row sets the conversation aside; others
count rollbacks by themselves.

conversation_handle: of the conversation that it failed on.
error_text: what broker.quarantine shows.
retry_after: sets the conversation aside at once, to be tried again after the first of these pauses,
  the next time after the second; when all are used up it stays until redrive or discard.

Returns: whether the conversation is quarantined now.
Rights: RECEIVE on the queue.
Locks: the group's row, until the transaction ends.
Errors: 153, 229, 8426
Example: select broker.note_failure(:'handle', 'the printer is on fire');$$;
