-- RECEIVE from several conversation groups in one call; ours: Service Broker's takes one.
--
-- Each group is locked until the transaction ends. Rows are ordered by group, the group that
-- RECEIVE would take first comes first; within one they are as RECEIVE returns them. top counts for
-- each group. It waits, if there is nothing at all, as RECEIVE does; it never waits for more
-- groups.
-- Locks: the groups' rows, one after the other, skipping those that others hold.
-- Errors: as broker.receive; 153 max_groups.
create or replace function broker.receive_groups(queue text, max_groups integer, top integer default null, timeout interval default '0')
returns setof broker.message
language plpgsql
rows 100
set search_path = pg_catalog, pg_temp
as $$
declare
  next record;
  walked bigint[];
  turns integer := 0;
  received broker.message[];
  wanted bigint;
  deadline timestamp with time zone;
  pause double precision := 0.002;
  is_called boolean;
begin
  if max_groups is null or max_groups < 1 then
    found := broker_private.refuse(
      153, format('max_groups is %s.', coalesce(max_groups::text, 'NULL')), 'Give a number of conversation groups, 1 or more.'
    );
  elsif top < 0 then
    found := broker_private.refuse(153, format('top is %s.', top), 'Give a number of messages, or leave top out for all of each group.');
  end if;
  while turns < max_groups loop
    next := broker_private.get_conversation_group(current_user, queue, timeout, walked);
    if next.walked = '{}' then
      is_called := broker_private.vouch(current_user);
      continue;
    elsif next.conversation_group is null then
      exit when timeout = interval '0' or top = 0 or broker_private.clock() >= deadline;
      deadline := coalesce(deadline, broker_private.clock() + timeout);
      perform pg_sleep(pause);
      pause := least(pause * 1.5, 0.02);
      continue;
    end if;
    exit when top = 0;
    timeout := interval '0';
    walked := next.walked;
    turns := turns + 1;
    wanted := top;
    loop
      received := broker_private.receive(current_user, queue, wanted, null, next.conversation_group, timeout);
      exit when received is null;
      if received = '{}' then
        is_called := broker_private.vouch(current_user);
        continue;
      end if;
      return query
      select
        0::smallint, r.priority, r.queuing_order, r.conversation_group_id, r.conversation_handle, r.message_sequence_number,
        r.service_name, r.service_id, r.service_contract_name, r.service_contract_id, r.message_type_name, r.message_type_id,
        r.validation, r.message_body, r.message_id, r.message_enqueue_time
      from unnest(received) r;
      exit when (received[cardinality(received)]).status = 0;
      wanted := wanted - cardinality(received);
    end loop;
  end loop;
end
$$;

comment on function broker.receive_groups(text, integer, integer, interval) is
$$Ours: RECEIVE from several conversation groups in one call, each locked until the transaction
ends.

queue: whose messages are meant.
max_groups: how many groups at most, 1 or more.
top: how many messages of each group at most; NULL is all.
timeout: how long to wait for the first message; NULL is for ever; above 0 in READ COMMITTED only.

Returns: rows of broker.message, ordered by group, then as broker.receive returns them.
Rights: RECEIVE on the queue.
Locks: the groups' rows, until the transaction ends.
Errors: 153, 208, 229, 9617
Example: select conversation_group_id, message_type_name from broker.receive_groups('warehouse', max_groups => 20);$$;
