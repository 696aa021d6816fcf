-- Locks the group that a RECEIVE names, waiting for whoever holds it.
--
-- Returns the group's number, whether a move touched it, its receive plan, and the endpoint's
-- number if a conversation was named.
-- Errors: 8426 the handle is unknown or on another queue, 8468 its service has just left the queue,
-- 8436 as 8426 for a group.
create or replace function broker_private.lock_named_group(queue integer, handle uuid, group_id uuid)
returns broker_private.picked_group
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  named broker_private.endpoints%rowtype;
  conversation_group broker_private.groups%rowtype;
  picked broker_private.picked_group;
begin
  if handle is not null then
    named := broker_private.lock_group_of(handle);
    if named.queue_id <> queue then
      if exists (
        select from broker_private.moved_services v where v.service_id = named.service_id and v.old_queue_id = queue
      ) then
        found := broker_private.refuse(
          8468, format('The underlying service of conversation "%s" has been altered.', handle),
          'It has moved to another queue: receive from that one.'
        );
      end if;
      found := broker_private.refuse(
        8426, format('The conversation handle "%s" is not found on this queue.', handle),
        'It belongs to another queue: receive from the queue of the conversation''s service.'
      );
    end if;
    picked.endpoint_no := named.endpoint_no;
    select g.* into conversation_group from broker_private.groups g where g.group_no = named.group_no;
  else
    select g.* into conversation_group
    from broker_private.groups g
    where g.conversation_group_id = group_id and g.queue_id = queue
      -- LIMIT 1: a search of the group's own, whatever the planner believes of the tables' sizes.
      and (
        select true from broker_private.endpoints e
        where e.group_no = g.group_no
          and (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no) is not null
        limit 1
      )
    for update;
    if not found then
      found := broker_private.refuse(
        8436, format('The conversation group "%s" is not found on this queue.', group_id),
        'broker.conversation_groups lists the groups; one goes with its last conversation.'
      );
    end if;
  end if;
  picked.group_no := conversation_group.group_no;
  picked.has_moved := conversation_group.has_moved;
  if not broker_private.is_plan_marked(conversation_group.receive_made) then
    picked.plan := conversation_group.receive_plan;
  end if;
  return picked;
end
$$;
