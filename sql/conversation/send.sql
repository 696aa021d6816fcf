-- hot path
-- SEND ON CONVERSATION.
--
-- Text is stored as UTF-8; '' is no body.
--
-- A message for this database goes into the far queue, any other into the transmission queue,
-- within the caller's transaction. Nothing is updated: RECEIVE or the acknowledgement gives the
-- numbers. Whoever sleeps on that queue is woken; a SEND learns from a lock whether anybody does
-- (sleep_on).
--
-- Two statements, as each costs 10,000 instructions or more before it reads a row. The first takes
-- the group's lock and learns the dialog's send plan from the same row, so that both are as new as
-- the lock. It locks nothing for a role that may not send, nor on a dialog whose lifetime is over.
-- The second begins after the lock: it inserts, unless the mark says that the plan is old
-- (refresh_plan). Where another dialog of the group has its plan on that row, the endpoint's row
-- tells. That it is still the same under the lock is seen from its place and version. A session in
-- REPEATABLE READ could not see that. Of the group's row it gets 40001 if the plan changed since
-- its snapshot. All else is send_slowly's: the first message, a refusal, a queue that is off or
-- retains, validation, an old plan. It makes the plan.
--
-- Within this database no look at far_events is needed. An EndDialog or Error of the far side comes
-- with its local_end. One for the lifetime comes after send_expires_at. Whatever else puts an Error
-- on such a dialog marks the plans (alter_broker, drop_contract).
--
-- A session that has set pybroker.traceparent takes the way of send_traced.
-- Locks: the group's row, until the transaction ends. So senders on one dialog wait for each other,
-- and messages are queued in commit order. The queue's advisory lock, shared, by trying, until then
-- too.
-- Plan: group by handle, far endpoint or far events: one probe each.
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
    exit when broker_private.send(current_user, conversation_handle, message_type, body);
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
    exit when broker_private.send(current_user, conversation_handle, message_type, convert_to(body, 'UTF8'));
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
    exit when broker_private.send(current_user, conversation_handle, message_type, convert_to(body::text, 'UTF8'));
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
    exit when broker_private.send(current_user, conversation_handle, message_type, convert_to(body::text, 'UTF8'));
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
  target bigint;
  place integer;
  level smallint;
  type_id integer;
  made bigint;
  location tid;
  version xid;
  conversation_group bigint;
begin
  -- Nearly always all of it holds. One expression, since starting one costs as much as reading a row. The two comparisons are is_entry where messages are
  -- in English; a check keeps the line's number true.
  get diagnostics stack = pg_context;
  if (
    stack collate "C" >= E'PL/pgSQL function broker_private.send(name,uuid,text,bytea) line 15 at GET DIAGNOSTICS\nPL/pgSQL function broker.'
    and stack collate "C" < E'PL/pgSQL function broker_private.send(name,uuid,text,bytea) line 15 at GET DIAGNOSTICS\nPL/pgSQL function broker/'
    and octet_length(content) <= broker_private.largest_body()
    and current_setting('pybroker.traceparent', true) is null
  ) is not true
  then
    if not broker_private.is_seen(stack, caller) then
      return null;
    end if;
    if octet_length(content) <= broker_private.largest_body() is not true then
      return broker_private.send_slowly(caller, handle, type_name, array[content]);
    end if;
    if current_setting('pybroker.traceparent', true) <> '' and broker_private.send_traced(caller, handle, type_name, content) then
      return true;
    end if;
  end if;

  select g.send_made, g.send_target, g.send_place, g.send_precedence, (g.send_types -> type_name)::integer
  into made, target, place, level, type_id
  from broker_private.groups g
  where g.send_handle = handle and g.send_expires_at > broker_private.clock()
    and pg_has_role(caller, g.send_receiver, 'USAGE') is not false
  for update;
  loop
    if level >= 0 and type_id is not null then
      insert into broker_private.messages (group_no, endpoint_no, queue_id, message_type_id, precedence, urgency, body)
      select f.group_no, target, place, type_id, level, 2, nullif(content, '')
      from broker_private.endpoints f
      where f.endpoint_no = target and f.local_end is null and made > pg_sequence_last_value('broker_private.plan_mark');
      if found and pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), place) then
        return found;
      elsif found then
        perform broker_private.wake_sleepers(place);
        return true;
      end if;
    elsif type_id is not null then
      insert into broker_private.transmission_messages (endpoint_no, destination_no, message_type_id, precedence, kind, body)
      select target, place, type_id, smallint '-1' - level, '<message>', nullif(content, '')
      where not exists (
          select from broker_private.far_events v where v.endpoint_no = target and v.event in ('<far end>', '<far error>')
        )
        and made > pg_sequence_last_value('broker_private.plan_mark');
      if found and pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), 0) then
        return found;
      elsif found then
        perform broker_private.wake_sleepers(0);
        return true;
      end if;
    end if;
    exit when location is not null;

    -- Another dialog of the group has its plan there, somebody else's right is on it, or it is old.
    select
      e.ctid, e.xmin, e.group_no, e.send_made, e.send_target, e.send_place, e.send_precedence,
      (e.send_types -> type_name)::integer
    into location, version, conversation_group, made, target, place, level, type_id
    from broker_private.endpoints e
    where e.conversation_handle = handle and e.expires_at > broker_private.clock()
      and case
        when e.send_types is null or current_setting('transaction_isolation') <> 'read committed' then false
        when pg_has_role(caller, e.send_receiver, 'USAGE') is not false then true
        else broker_private.may_receive(caller, e.queue_id)
      end;
    exit when not found;
    perform from broker_private.groups g where g.group_no = conversation_group for update;
    perform from broker_private.endpoints e where e.ctid = location and e.xmin = version;
    exit when not found;
  end loop;
  return broker_private.send_slowly(caller, handle, type_name, array[content]);
end
$$;

comment on function broker.send(uuid, text, bytea) is
$$SEND ON CONVERSATION: sends a message, in the caller's transaction. Nobody sees it before the
commit.

conversation_handle: of this side.
message_type: one that the contract lets this side send.
body: at most 1,000,000,000 bytes; '' is no body.

Rights: SEND on this side's service.
Locks: the group's row, until the transaction ends: messages are queued in the order in which
  senders commit.
Errors: 229, 8426, 8427, 8428, 8429, 8430, 8431, 8432, 8433, 8434, 8459
Example: select broker.send(:'handle', '//shop/order', '\x7b7d'::bytea);$$;

comment on function broker.send(uuid, text, text) is
$$SEND ON CONVERSATION with a text, which is stored as UTF-8.

conversation_handle, message_type: as broker.send(uuid, text, bytea).
body: a text.

Rights, locks and errors: as broker.send(uuid, text, bytea).
Example: select broker.send(:'handle', '//shop/order', '{"id": 1}');$$;

comment on function broker.send(uuid, text, jsonb) is
$$SEND ON CONVERSATION with JSON, which is stored as its text in UTF-8.

conversation_handle, message_type: as broker.send(uuid, text, bytea).
body: JSON.

Rights, locks and errors: as broker.send(uuid, text, bytea).
Example: select broker.send(:'handle', '//shop/order', jsonb_build_object('id', 1));$$;

comment on function broker.send(uuid, text, xml) is
$$SEND ON CONVERSATION with XML, which is stored as its text in UTF-8.

conversation_handle, message_type: as broker.send(uuid, text, bytea).
body: XML.

Rights, locks and errors: as broker.send(uuid, text, bytea).
Example: select broker.send(:'handle', '//shop/order', xmlparse(document '<order/>'));$$;
