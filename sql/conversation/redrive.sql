-- Takes a conversation out of quarantine with all its messages, the one that failed first.
--
-- Returns how many there are. A DialogTimer or an Error that arrived meanwhile still comes before
-- them, as always.
--
-- Ours: Service Broker has no quarantine.
-- Locks: the group's row.
-- Errors: 8426 unknown handle, 8427 not quarantined, 229 no RECEIVE on the queue.
create or replace function broker.redrive(conversation_handle uuid)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  released bigint;
begin
  loop
    released := broker_private.redrive(current_user, conversation_handle);
    exit when released is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return released;
end
$$;

create or replace function broker_private.redrive(caller name, handle uuid)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  return broker_private.release_conversation(caller, handle, true);
end
$$;

comment on function broker.redrive(uuid) is
$$Ours: takes a conversation out of quarantine with all its messages, the one that failed first.

conversation_handle: of a quarantined conversation.

Returns: how many messages came back.
Rights: RECEIVE on the queue.
Locks: the group's row, until the transaction ends.
Errors: 229, 8426, 8427
Example: select broker.redrive(conversation_handle) from broker.quarantine where queue_name = 'warehouse';$$;
