-- A standby refuses to plan a statement that names an unlogged table, so the monitoring views failed
-- there. Logged, they can be read; the views show nothing there, as what they tell of is not there.
alter table broker_private.activated_tasks set logged;
alter table broker_private.workers set logged;
alter table broker_private.connections set logged;
alter table broker_private.forwarded_messages set logged;

-- It gets the arguments owner and schema.
drop function if exists broker.alter_queue(
  text, boolean, boolean, text, integer, boolean, text, boolean, text, text, interval, boolean
);
drop function if exists broker_private.alter_queue(
  name, text, boolean, boolean, text, integer, boolean, text, boolean, text, text, interval, boolean
);
