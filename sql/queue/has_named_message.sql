-- Tells whether a RECEIVE that waits by handle or group may find a message now.
--
-- It is asked without any lock, so that who waits keeps nobody out; RECEIVE locks when it is true,
-- and looks again. Also true for what is not on the queue: lock_named_group words the refusal. Not
-- for what RECEIVE would remove or set aside, else the waiter would lock at each look.
-- Plan: the endpoint by handle, or the group by id; then messages_group for each conversation.
-- Errors: 8468 the service was dropped, or took the conversation or the group to another queue.
create or replace function broker_private.has_named_message(queue integer, handle uuid, group_id uuid)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
as $$
declare
  endpoint bigint;
  group_number bigint;
  service integer;
  is_here boolean;
  is_dropped boolean;
  group_has_moved boolean;
begin
  if handle is not null then
    select
      e.endpoint_no, e.group_no, e.service_id, g.has_moved,
      e.queue_id = queue and (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no) is not null
    into endpoint, group_number, service, group_has_moved, is_here
    from broker_private.endpoints e
    cross join lateral (
      select x.has_moved from broker_private.groups x where x.group_no = e.group_no limit 1
    ) g
    where e.conversation_handle = handle;
  else
    select
      g.group_no, g.service_id, g.has_moved,
      g.queue_id = queue and exists (
        select from broker_private.endpoints e
        where e.group_no = g.group_no
          and (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no) is not null
      )
    into group_number, service, group_has_moved, is_here
    from broker_private.groups g
    where g.conversation_group_id = group_id;
  end if;
  is_dropped := exists (select from broker_private.services s where s.service_id = service and s.name is null);
  if is_dropped or is_here is not true then
    if is_dropped or exists (
      select from broker_private.moved_services v where v.service_id = service and v.old_queue_id = queue
    ) then
      found := broker_private.refuse(
        8468,
        format(
          'The underlying service of conversation%s "%s" has been altered or dropped.',
          case when handle is null then ' group' else '' end, coalesce(handle, group_id)
        ),
        'If it has moved to another queue, receive from that one; broker.services shows where it is.'
      );
    end if;
    return true;
  end if;
  return exists (
    select from (
      select e.endpoint_no, e.priority from broker_private.endpoints e
      where e.group_no = group_number and (endpoint is null or e.endpoint_no = endpoint) and e.local_end is null
        and not exists (select from broker_private.quarantine z where z.endpoint_no = e.endpoint_no)
      offset 0
    ) e
    cross join lateral (
      select from broker_private.messages m
      where m.group_no = group_number and m.precedence = 10 - e.priority and m.endpoint_no = e.endpoint_no
      order by m.urgency, m.id
      limit 1
    ) m
  ) or group_has_moved and exists (
    -- Strays: RECEIVE brings them home.
    select from broker_private.moved_conversations v
    join broker_private.messages m on m.group_no = v.old_group_no and m.endpoint_no = v.endpoint_no
    join broker_private.endpoints e on e.endpoint_no = v.endpoint_no and e.local_end is null
    where v.group_no = group_number and (endpoint is null or v.endpoint_no = endpoint)
      and not exists (select from broker_private.quarantine z where z.endpoint_no = v.endpoint_no)
  );
end
$$;
