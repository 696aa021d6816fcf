-- Removes the triggers that attach_trace made.
-- Locks: ACCESS EXCLUSIVE on seven tables, until the transaction ends; for each it waits a tenth of
-- a second at most.
-- Errors: 55P03, if writers or readers do not end meanwhile.
create or replace function broker_private.detach_trace()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set client_min_messages = warning
as $$
begin
  lock table broker_private.endpoints, broker_private.messages, broker_private.transmission_messages,
    broker_private.incomplete_messages, broker_private.far_events, broker_private.transmission_status,
    broker_private.quarantine in access exclusive mode;
  drop trigger if exists trace_insert on broker_private.endpoints;
  drop trigger if exists trace_update on broker_private.endpoints;
  drop trigger if exists trace_insert on broker_private.messages;
  drop trigger if exists trace_delete on broker_private.messages;
  drop trigger if exists trace_insert on broker_private.transmission_messages;
  drop trigger if exists trace_delete on broker_private.transmission_messages;
  drop trigger if exists trace_insert on broker_private.incomplete_messages;
  drop trigger if exists trace_insert on broker_private.far_events;
  drop trigger if exists trace_insert on broker_private.transmission_status;
  drop trigger if exists trace_update on broker_private.transmission_status;
  drop trigger if exists trace_insert on broker_private.quarantine;
  drop trigger if exists trace_delete on broker_private.quarantine;
end
$$;
