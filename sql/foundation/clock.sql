-- The time, for everything in these schemas that asks for one.
--
-- A test replaces it (only the role that owns the schema can) and moves timers and lifetimes
-- without sleeping.
create or replace function broker_private.clock()
returns timestamp with time zone
language sql volatile
begin atomic
  select pg_catalog.clock_timestamp();
end;

-- A default, not a column of SEND's list: a volatile function there would cost SEND two more plan
-- nodes.
alter table broker_private.messages alter column enqueue_time set default broker_private.clock();
alter table broker_private.transmission_messages alter column enqueue_time set default broker_private.clock();
