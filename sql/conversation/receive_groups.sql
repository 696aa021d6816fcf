-- broker.receive_groups(queue, max_groups, top, timeout): RECEIVE from several conversation groups in one call; ours: Service Broker's takes one.
-- Each group is locked until the transaction ends. Rows are ordered by group, the group that RECEIVE would take first comes first; within one they are as
-- RECEIVE returns them. top counts for each group. It waits, if there is nothing at all, as RECEIVE does; it never waits for more groups.
-- Locks: the groups' rows, one after the other, skipping those that others hold.
-- Errors: as broker.receive; 153 max_groups.
create or replace function broker.receive_groups(queue text, max_groups integer, top integer default null, timeout interval default '0')
returns setof broker.message
language plpgsql
rows 100
set search_path = pg_catalog, pg_temp
as $$
declare
  next_group uuid;
  taken uuid[] := '{}';
  received broker.message[];
  wanted bigint;
  deadline timestamp with time zone;
  pause double precision := 0.002;
begin
  if max_groups is null or max_groups < 1 then
    perform broker_private.refuse(
      153, format('max_groups is %s.', coalesce(max_groups::text, 'NULL')), 'Give a number of conversation groups, 1 or more.'
    );
  elsif top < 0 then
    perform broker_private.refuse(153, format('top is %s.', top), 'Give a number of messages, or leave top out for all of each group.');
  end if;
  next_group := broker_private.get_conversation_group(current_user, queue, timeout, '{}');
  if next_group is null and top is distinct from 0 and timeout is distinct from interval '0' then
    deadline := broker_private.clock() + timeout;
    while next_group is null and (deadline is null or broker_private.clock() < deadline) loop
      perform pg_sleep(pause);
      pause := least(pause * 1.5, 0.02);
      next_group := broker_private.get_conversation_group(current_user, queue, interval '0', '{}');
    end loop;
  end if;
  while next_group is not null and top is distinct from 0 loop
    taken := taken || next_group;
    wanted := top;
    loop
      received := broker_private.receive(current_user, queue, wanted, null, next_group, interval '0');
      exit when received is null;
      return query
      select
        0::smallint, r.priority, r.queuing_order, r.conversation_group_id, r.conversation_handle, r.message_sequence_number,
        r.service_name, r.service_id, r.service_contract_name, r.service_contract_id, r.message_type_name, r.message_type_id,
        r.validation, r.message_body, r.message_id, r.message_enqueue_time
      from unnest(received) r;
      exit when (received[cardinality(received)]).status = 0;
      wanted := wanted - cardinality(received);
    end loop;
    exit when cardinality(taken) >= max_groups;
    next_group := broker_private.get_conversation_group(current_user, queue, interval '0', taken);
  end loop;
end
$$;
