-- BEGIN CONVERSATION TIMER: a DialogTimer in this side's own queue after the timeout.
--
-- The far side never knows. Another call replaces the timer. A worker fires it.
-- Locks: the group's row, then the timer's.
-- Errors: 8426 handle, 8458 state, 8410 beyond the dialog's lifetime, 153 timeout, 229 no SEND on
-- the service of this side.
create or replace function broker.begin_conversation_timer(conversation_handle uuid, timeout interval)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.begin_conversation_timer(current_user, conversation_handle, timeout);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.begin_conversation_timer(caller name, handle uuid, timeout interval)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  e broker_private.endpoints%rowtype;
  endpoint_state text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if timeout is null or timeout <= interval '0' then
    found := broker_private.refuse(
      153, format('The timeout %s of the conversation timer is not above 0.', coalesce(timeout::text, 'NULL')), 'Give an interval above 0.'
    );
  end if;
  e := broker_private.lock_group_of(handle);
  perform broker_private.require_send(caller, e.service_id);
  select s.state into endpoint_state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no;
  if endpoint_state in ('DO', 'CD') then
    found := broker_private.refuse(
      8458, format('The conversation endpoint "%s" is in state %s and takes no timer.', handle, endpoint_state),
      'This side has ended the conversation.'
    );
  end if;
  if timeout > make_interval(secs => 2147483647) or broker_private.clock() + timeout > e.expires_at then
    found := broker_private.refuse(
      8410, format('The timer of conversation "%s" would fire after the end of its lifetime, %s.', handle, e.expires_at),
      'Use a shorter timeout: when the lifetime is over an Error message comes anyway.'
    );
  end if;
  insert into broker_private.conversation_timers as t (endpoint_no, fires_at, queue_id)
  values (e.endpoint_no, broker_private.clock() + timeout, e.queue_id)
  on conflict (endpoint_no) do update set fires_at = excluded.fires_at, queue_id = excluded.queue_id;
  -- A worker, which looks once in five seconds, would be late.
  if timeout <= interval '5 s' then
    perform broker_private.wake_sleepers(-1);
  end if;
  return true;
end
$$;

comment on function broker.begin_conversation_timer(uuid, interval) is
$$BEGIN CONVERSATION TIMER: puts a DialogTimer message into this side's own queue after a time.
Another call replaces the timer; the far side never knows.

conversation_handle: of this side.
timeout: more than 0, and within the dialog's lifetime. A worker fires it.

Rights: SEND on this side's service.
Locks: the group's row, until the transaction ends.
Errors: 153, 229, 8410, 8426, 8458
Example: select broker.begin_conversation_timer(:'handle', '30 s');$$;
