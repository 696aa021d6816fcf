-- Marks the conversations that a RECEIVE returned messages of, to count its rollback.
--
-- The queue is one that quarantines. A rollback of this transaction counts against them.
--
-- Only what was received last counts: a program that goes on to receive has got past what it
-- received before. So a conversation that this transaction received earlier keeps the count that it
-- had. A queue has four marks for its conversations. A mark is: transaction * 2^31 + endpoint * 8 +
-- rollbacks in a row before. Of the transaction's id it has the low half, of the endpoint's number
-- the low 28 bits. The four marks behind hold the id of the session. Only the holder of its group
-- receives of a conversation, so nobody competes for its mark, only for a place. A conversation
-- without a mark takes that of one that has not failed, or has failed least.
-- Locks: the rows of noted failures; the caller holds the group.
create or replace function broker_private.note_conversations(queue integer, received broker.message[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  marks regclass[];
  endpoints bigint[];
  endpoint bigint;
  mark bigint;
  place integer;
  chosen integer;
  kept integer;
  states integer[];
  worth integer;
  lowest integer;
  current_half constant bigint := txid_current() & 4294967295;
begin
  if cardinality(received) = 1 then
    endpoints := array(select e.endpoint_no from broker_private.endpoints e where e.conversation_handle = (received[1]).conversation_handle);
  else
    select array_agg(e.endpoint_no order by h.place) into endpoints
    from (
      select r.conversation_handle, min(r.place) as place
      from unnest(received) with ordinality as r (
        status, priority, queuing_order, conversation_group_id, conversation_handle, message_sequence_number, service_name, service_id,
        service_contract_name, service_contract_id, message_type_name, message_type_id, validation, message_body, message_id,
        message_enqueue_time, place
      )
      group by r.conversation_handle
    ) h
    -- LIMIT 1: a probe of the key for each, whatever the planner believes of the table's size.
    cross join lateral (
      select x.endpoint_no from broker_private.endpoints x where x.conversation_handle = h.conversation_handle limit 1
    ) e;
  end if;
  if exists (select from broker_private.noted_failures n) then
    delete from broker_private.noted_failures n where n.endpoint_no = any (endpoints);
  end if;
  select q.marks into marks
  from broker_private.queues q
  where q.queue_id = queue and q.is_poison_message_handling_enabled and q.poison_action = 'QUARANTINE';
  if not found then
    return;
  end if;
  for place in 1 .. 4 loop
    mark := pg_sequence_last_value(marks[place]);
    if mark >> 31 = current_half and not exists (select from unnest(endpoints) u (no) where u.no & 268435455 = mark >> 3 & 268435455) then
      perform setval(marks[place], case when mark & 7 > 0 then mark & 2147483647 else 0 end);
    end if;
  end loop;
  -- Of more the first ones are enough: they are received one by one after a rollback, and the others then.
  states := broker_private.mark_states(marks);
  foreach endpoint in array endpoints[1:4] loop
    chosen := null;
    lowest := 1000;
    for turn in 0 .. 3 loop
      place := 1 + (endpoint + turn) % 4;
      mark := coalesce(pg_sequence_last_value(marks[place]), 0);
      if mark >> 3 & 268435455 = endpoint & 268435455 then
        chosen := place;
        kept := states[place] / 10;
        exit;
      end if;
      worth := states[place];
      if worth >= 10 and not exists (
        select from broker_private.failing_conversations(queue) f
        where f.mark = marks[place] and not exists (select from broker_private.quarantine z where z.endpoint_no = f.endpoint_no)
      ) then
        worth := 0;
      end if;
      if worth < lowest then
        lowest := worth;
        chosen := place;
        kept := 0;
      end if;
    end loop;
    mark := setval(marks[chosen + 4], pg_backend_pid());
    mark := setval(marks[chosen], (current_half << 31) + ((endpoint & 268435455) << 3) + kept);
    states[chosen] := 10 * kept + 1;
  end loop;
end
$$;
