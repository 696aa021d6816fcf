-- The W3C trace context that came with a message which was received, once.
--
-- Ours.
-- Plan: the context by its primary key.
-- Errors: none: a conversation that the caller may not receive from has no context for him.
create or replace function broker.get_traceparent(message broker.message)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  found_one text;
begin
  loop
    found_one := broker_private.get_traceparent(
      current_user, message.conversation_handle, message.queuing_order
    );
    exit when found_one is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return nullif(found_one, '');
end
$$;

create or replace function broker_private.get_traceparent(caller name, handle uuid, place bigint)
returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  stack text;
  endpoint bigint;
  found_one text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  select e.endpoint_no into endpoint
  from broker_private.endpoints e
  where e.conversation_handle = handle and broker_private.may_receive(caller, e.queue_id);
  delete from broker_private.traceparents t
  where t.endpoint_no = endpoint and t.queuing_order = place
  returning t.traceparent into found_one;
  return coalesce(found_one, '');
end
$$;

comment on function broker.get_traceparent(broker.message) is
$$Ours: the W3C trace context that came with a message, NULL if none did. It is told once, in the
transaction that received the message: a rollback brings both back.

message: a row of broker.receive.

Returns: 55 characters, for SET pybroker.traceparent or a tracing library.
Rights: RECEIVE on the queue; without it NULL.
Example: select m.*, broker.get_traceparent(m) from broker.receive('warehouse') m;$$;
