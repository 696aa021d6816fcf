-- What RECEIVE does first with a group that it has locked, on a queue that quarantines.
--
-- Quarantines the group's conversations that have failed five times in a row, and moves what
-- arrived for quarantined ones out of the way. Returns how many messages to receive.
--
-- While conversations of the queue have failed less often, a transaction receives once, and only
-- one message of a group with such a conversation. So the one that fails is found, and the others
-- get past it. 0: this transaction has received already.
-- Locks: none more; the caller holds the group.
create or replace function broker_private.set_aside(queue integer, group_number bigint, wanted bigint)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  failing record;
  conversation record;
  is_failing boolean := false;
  marks regclass[];
begin
  select q.marks[1:4] into marks
  from broker_private.queues q
  where q.queue_id = queue and q.is_poison_message_handling_enabled and q.poison_action = 'QUARANTINE';
  if found and (10 <= any (broker_private.mark_states(marks)) or exists (select from broker_private.noted_failures n)) then
    for failing in
      select f.endpoint_no, f.failures, f.session_id, e.group_no = group_number as is_here
      from broker_private.failing_conversations(queue) f
      join broker_private.endpoints e on e.endpoint_no = f.endpoint_no
      where not exists (select from broker_private.quarantine z where z.endpoint_no = f.endpoint_no)
      union all
      select n.endpoint_no, 0, null, e.group_no = group_number
      from broker_private.noted_failures n
      join broker_private.endpoints e on e.endpoint_no = n.endpoint_no
      where e.queue_id = queue and e.local_end is null
    loop
      is_failing := is_failing or failing.failures < 5;
      if failing.is_here and failing.failures >= 5 then
        perform broker_private.quarantine_conversation(failing.endpoint_no, failing.failures, null, failing.session_id, null);
      elsif failing.is_here then
        wanted := least(wanted, 1);
      end if;
    end loop;
  end if;
  if exists (select from broker_private.quarantine z) then
    for conversation in
      select z.endpoint_no
      from broker_private.endpoints e
      join broker_private.quarantine z on z.endpoint_no = e.endpoint_no
      where e.group_no = group_number
    loop
      perform broker_private.move_aside(conversation.endpoint_no);
    end loop;
  end if;
  if is_failing and exists (
    select from unnest(marks) as m (mark)
    where pg_sequence_last_value(m.mark) >> 31 = txid_current() & 4294967295
  ) then
    return 0;
  end if;
  return wanted;
end
$$;
