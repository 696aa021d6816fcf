-- Trigger of the definitions that a worker's look asks for.
--
-- A worker with nothing to do looks seldom, so whoever changes one of them wakes it.
-- Why: diagnosis/due.sql says what a look asks.
create or replace function broker_private.wake_workers()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.wake_sleepers(-1);
  return null;
end
$$;

create or replace trigger wake_workers
after insert or delete or update of is_receive_enabled, is_activation_enabled on broker_private.queues
for each statement execute function broker_private.wake_workers();
alter table broker_private.queues enable always trigger wake_workers;

create or replace trigger wake_workers
after insert or delete or update on broker_private.event_notifications
for each statement execute function broker_private.wake_workers();
alter table broker_private.event_notifications enable always trigger wake_workers;

create or replace trigger wake_workers
after insert on broker_private.schema_collections
for each statement execute function broker_private.wake_workers();
alter table broker_private.schema_collections enable always trigger wake_workers;

create or replace trigger wake_workers
after update on broker_private.broker_instance
for each statement execute function broker_private.wake_workers();
alter table broker_private.broker_instance enable always trigger wake_workers;

create or replace trigger wake_workers
after insert or delete or update on broker_private.tcp_endpoint
for each statement execute function broker_private.wake_workers();
alter table broker_private.tcp_endpoint enable always trigger wake_workers;

create or replace trigger wake_workers
after insert or delete or update on broker_private.certificates
for each statement execute function broker_private.wake_workers();
alter table broker_private.certificates enable always trigger wake_workers;

create or replace trigger wake_workers
after insert or delete or update on broker_private.permissions
for each statement execute function broker_private.wake_workers();
alter table broker_private.permissions enable always trigger wake_workers;

create or replace trigger wake_workers
after insert or delete or update on broker_private.traces
for each statement execute function broker_private.wake_workers();
alter table broker_private.traces enable always trigger wake_workers;
