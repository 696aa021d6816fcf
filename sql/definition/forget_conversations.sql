-- broker_private.forget_conversations(): empties every table of conversations and messages, for NEW_BROKER.
-- TRUNCATE locks table after table, and a worker that looks at several has them in another order. Who is told of the deadlock gives his locks
-- back; if it is this one, it begins anew.
-- Locks: the tables, against everybody, until the transaction ends.
-- Errors: 40P01, when the caller's own locks are what a worker waits for.
create or replace function broker_private.forget_conversations()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  attempts constant integer := 10;
begin
  for attempt in 1..attempts loop
    begin
      truncate
          broker_private.endpoints, broker_private.groups, broker_private.messages, broker_private.incomplete_messages, broker_private.transmission_messages, broker_private.early_messages,
          broker_private.message_pieces,
          broker_private.transmission_status, broker_private.sequence_counters, broker_private.far_events, broker_private.dialog_security,
          broker_private.conversation_timers, broker_private.retained_messages, broker_private.shared_bodies,
          broker_private.configuration_requests, broker_private.quarantine, broker_private.quarantined_messages, broker_private.noted_failures,
          broker_private.moved_conversations, broker_private.moved_services;
      return;
    exception when deadlock_detected then
      if attempt = attempts then
        raise;
      end if;
    end;
  end loop;
end
$$;
