-- What RECEIVE returns of one conversation of a group, for messages of one type. It learns that by
-- taking the lock on the group's row; conversation/make_receive_plan.sql makes it.
create type broker_private.receive_plan as (
  endpoint_no bigint,
  -- What a message's id begins with, and what is added to its number.
  id_prefix text,
  id_base bigint,
  message broker.message
);
alter table broker_private.groups
  -- The oldest transaction that may not have been over when the plan was made.
  add column receive_made xid8,
  add column receive_plan broker_private.receive_plan;

-- The group that RECEIVE has locked, with the conversation that was named, and whether a search for
-- its messages should begin at floors.
create type broker_private.picked_group as (
  group_no bigint,
  has_moved boolean,
  plan broker_private.receive_plan,
  endpoint_no bigint,
  is_deep boolean
);
-- They return it now.
drop function if exists broker_private.pick_above_floors(integer, boolean);
drop function if exists broker_private.lock_named_group(integer, uuid, uuid);
