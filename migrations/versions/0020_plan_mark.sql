-- The transaction that last marked all plans (sending/mark_plans.sql). Read after a lock it is as
-- new as the lock, without a statement, and nothing has to remove what is old.
create sequence if not exists broker_private.plan_mark;
select setval('broker_private.plan_mark', txid_current());

-- All plans go, and no row is written for it: without types there is no send plan, and a receive
-- plan that does not say when it was made is not believed.
alter table broker_private.groups
  drop column send_made, add column send_made bigint,
  drop column send_types, add column send_types jsonb,
  drop column receive_made, add column receive_made bigint;
alter table broker_private.endpoints
  drop column send_made, add column send_made bigint,
  drop column send_types, add column send_types jsonb;

drop function if exists broker_private.is_plan_marked(xid8);
drop function if exists broker_private.put_messages(xid8, bigint, integer, smallint, integer, bytea[], bigint);
drop table if exists broker_private.plan_marks;
