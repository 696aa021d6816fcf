-- broker.redrive(conversation_handle): takes a conversation out of quarantine with all its messages, the one that failed first; returns how many there are.
-- A DialogTimer or an Error that arrived meanwhile still comes before them, as always.
-- Ours: Service Broker has no quarantine.
-- Locks: the group's row.
-- Errors: 8426 unknown handle, 8427 not quarantined, 229 no RECEIVE on the queue.
create or replace function broker.redrive(conversation_handle uuid)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  released bigint;
begin
  released := broker_private.redrive(current_user, conversation_handle);
  return released;
end
$$;

create or replace function broker_private.redrive(caller name, handle uuid)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.assert_entry(caller);
  return broker_private.release_conversation(caller, handle, true);
end
$$;
