-- Makes the triggers that tell a trace what happens.
-- Locks: SHARE ROW EXCLUSIVE on seven tables, until the transaction ends. It waits for the writers
-- of each for a tenth of a second at most.
-- Errors: 55P03, if they do not end meanwhile.
-- Why: a trigger that is there costs something even while it is disabled, so it is there only while
-- somebody traces. All its waits together are shorter than deadlock_timeout: whoever meets it in a
-- deadlock goes on, and this function gives up.
create or replace function broker_private.attach_trace()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  lock table broker_private.endpoints, broker_private.messages, broker_private.transmission_messages,
    broker_private.incomplete_messages, broker_private.far_events, broker_private.transmission_status,
    broker_private.quarantine in share row exclusive mode;
  create or replace trigger trace_insert
  after insert on broker_private.endpoints referencing new table as changed
  for each statement execute function broker_private.trace_endpoints();
  create or replace trigger trace_update
  after update on broker_private.endpoints referencing old table as before new table as changed
  for each statement execute function broker_private.trace_ends();
  create or replace trigger trace_insert
  after insert on broker_private.messages referencing new table as changed
  for each statement execute function broker_private.trace_messages();
  create or replace trigger trace_delete
  after delete on broker_private.messages referencing old table as changed
  for each statement execute function broker_private.trace_removed_messages();
  create or replace trigger trace_insert
  after insert on broker_private.transmission_messages referencing new table as changed
  for each statement execute function broker_private.trace_transmission();
  create or replace trigger trace_delete
  after delete on broker_private.transmission_messages referencing old table as changed
  for each statement execute function broker_private.trace_acknowledged();
  create or replace trigger trace_insert
  after insert on broker_private.incomplete_messages referencing new table as changed
  for each statement execute function broker_private.trace_incomplete();
  create or replace trigger trace_insert
  after insert on broker_private.far_events referencing new table as changed
  for each statement execute function broker_private.trace_far_events();
  create or replace trigger trace_insert
  after insert on broker_private.transmission_status referencing new table as changed
  for each statement execute function broker_private.trace_status();
  create or replace trigger trace_update
  after update on broker_private.transmission_status referencing new table as changed
  for each statement execute function broker_private.trace_status();
  create or replace trigger trace_insert
  after insert on broker_private.quarantine referencing new table as changed
  for each statement execute function broker_private.trace_quarantine();
  create or replace trigger trace_delete
  after delete on broker_private.quarantine referencing old table as changed
  for each statement execute function broker_private.trace_quarantine();
end
$$;
