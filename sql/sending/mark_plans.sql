-- Trigger of what send plans rest on: makes the plans worthless.
--
-- All of them are that were made before this transaction is over; each dialog gets another by its
-- next SEND. A dialog gets another by its next SEND, or by one of its next RECEIVEs.
--
-- It inserts a row, so it waits for no sender. Older marks say nothing that this one does not. They
-- go, but for those that another session is removing, so that the look of a SEND stays short. In a
-- copy of a database that was restored elsewhere, plans name transactions of another server. There
-- a mark holds for every plan, until the broker is enabled.
-- Why: sending/refresh_plan.sql.
create or replace function broker_private.mark_plans()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  marking constant xid8 := case
    when broker_private.is_copy() then '18446744073709551615' else pg_current_xact_id()
  end;
begin
  if not exists (select from broker_private.plan_marks m where m.marked_by >= marking) then
    delete from broker_private.plan_marks m
    where m.ctid = any (array(
      select x.ctid from broker_private.plan_marks x where x.marked_by < marking for update skip locked
    ));
    insert into broker_private.plan_marks (marked_by) values (marking);
  end if;
  return null;
end
$$;

create or replace trigger mark_plans
after update of is_enqueue_enabled, is_retention_enabled, owner on broker_private.queues
for each statement execute function broker_private.mark_plans();

create or replace trigger mark_plans
after update of validation, schema_collection_id on broker_private.message_types
for each statement execute function broker_private.mark_plans();

create or replace trigger mark_plans
after update of name on broker_private.contracts
for each statement execute function broker_private.mark_plans();

create or replace trigger mark_plans
after delete or update on broker_private.permissions
for each row when (old.permission = 'RECEIVE') execute function broker_private.mark_plans();

create or replace trigger mark_plans
after update of is_broker_enabled on broker_private.broker_instance
for each statement execute function broker_private.mark_plans();

-- The place that the far side's plans name.
create or replace trigger mark_plans
after update of queue_id on broker_private.endpoints
for each row when (old.queue_id <> new.queue_id) execute function broker_private.mark_plans();
