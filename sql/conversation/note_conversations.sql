-- broker_private.note_conversations(queue, received): marks the conversations that a RECEIVE returned messages of, on a queue that quarantines, so that the
-- rollback of this transaction counts against them.
--
-- Only what was received last counts: a program that goes on to receive has got past what it received before. So a conversation that this
-- transaction received earlier keeps the count that it had.
-- A queue has four marks for its conversations, each for a quarter of them. A mark is: low half of the transaction's id * 2^31 + low 28 bits of the endpoint's number * 8
-- + the rollbacks in a row counted before. The holder of a conversation's group is the only one who receives of it, so
-- its mark has no races but with others of its quarter: one that has failed keeps the mark, while it has messages; of others the last one gets it.
-- Locks: the rows of noted failures; the caller holds the group.
create or replace function broker_private.note_conversations(queue integer, received broker.message[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  marks regclass[];
  endpoints bigint[];
  endpoint bigint;
  mark bigint;
  place integer;
  current_half constant bigint := txid_current() & 4294967295;
begin
  select array_agg(distinct e.endpoint_no) into endpoints
  from unnest(received) r
  join broker_private.endpoints e on e.conversation_handle = r.conversation_handle;
  delete from broker_private.noted_failures n where n.endpoint_no = any (endpoints);
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
  foreach endpoint in array endpoints loop
    place := 1 + endpoint % 4;
    mark := coalesce(pg_sequence_last_value(marks[place]), 0);
    if mark >> 3 & 268435455 <> endpoint & 268435455 then
      continue when broker_private.marked_failures(mark) > 0 and exists (
        select from broker_private.failing_conversations(queue) f
        join broker_private.endpoints e on e.endpoint_no = f.endpoint_no
        join broker_private.messages m on m.group_no = e.group_no and m.precedence = 10 - e.priority and m.endpoint_no = e.endpoint_no
        where f.mark = marks[place]
      );
      mark := 0;
    end if;
    perform setval(
      marks[place], (current_half << 31) + ((endpoint & 268435455) << 3) + broker_private.marked_failures(mark)
    );
  end loop;
end
$$;
