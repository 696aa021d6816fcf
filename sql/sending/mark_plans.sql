-- Trigger of what plans rest on: makes the plans worthless.
--
-- All of them are that were made before this transaction is over (refresh_plan says why). Each
-- dialog gets another by its next SEND, and by one of its next RECEIVEs.
--
-- The mark is the value of a sequence: the greatest transaction that ever marked. It is set here,
-- before the commit, and each SEND sees it at once. A rollback leaves it set, which only costs each
-- dialog a plan. What a crash takes of the log before this commit, it takes of the commit too. So
-- the mark of whatever has changed is there after a crash, at a standby and in a copy.
--
-- Of two at a time the greater must stay. So comparing and setting are under a lock, which a
-- subtransaction gives back at once: who changes definitions waits for nobody else's commit. Only
-- the broker's owner may take that lock, so no other role can hold it. Nobody who reads or changes
-- that table waits for it. The sequence's own lock comes before it, so that enable_broker can't
-- stand in between.
--
-- In a copy of a database that was restored elsewhere, plans name transactions of another server.
-- There a mark holds for every plan, until the broker is enabled.
create or replace function broker_private.mark_plans()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  marking constant bigint := case when broker_private.is_copy() then 9223372036854775807 else txid_current() end;
begin
  if pg_sequence_last_value('broker_private.plan_mark') >= marking then
    return null;
  end if;
  lock table broker_private.broker_instance in share update exclusive mode;
  if (pg_sequence_last_value('broker_private.plan_mark') >= marking) is not true then
    perform setval('broker_private.plan_mark', marking);
  end if;
  raise exception using errcode = 'SMARK';
exception
  when sqlstate 'SMARK' then
    return null;
end
$$;

create or replace trigger mark_plans
after update of is_enqueue_enabled, is_retention_enabled, owner on broker_private.queues
for each statement execute function broker_private.mark_plans();
alter table broker_private.queues enable always trigger mark_plans;

create or replace trigger mark_plans
after update of validation, schema_collection_id on broker_private.message_types
for each statement execute function broker_private.mark_plans();
alter table broker_private.message_types enable always trigger mark_plans;

create or replace trigger mark_plans
after update of name on broker_private.contracts
for each statement execute function broker_private.mark_plans();
alter table broker_private.contracts enable always trigger mark_plans;

create or replace trigger mark_plans
after delete or update on broker_private.permissions
for each row when (old.permission = 'RECEIVE') execute function broker_private.mark_plans();
alter table broker_private.permissions enable always trigger mark_plans;

create or replace trigger mark_plans
after update of is_broker_enabled on broker_private.broker_instance
for each statement execute function broker_private.mark_plans();
alter table broker_private.broker_instance enable always trigger mark_plans;

-- The place that the far side's plans name.
create or replace trigger mark_plans
after update of queue_id on broker_private.endpoints
for each row when (old.queue_id <> new.queue_id) execute function broker_private.mark_plans();
alter table broker_private.endpoints enable always trigger mark_plans;
