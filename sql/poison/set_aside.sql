-- What RECEIVE does first with a group that it has locked, on a queue that quarantines.
--
-- Quarantines the group's conversations that have failed five times in a row, and moves what
-- arrived for quarantined ones out of the way. Returns how many messages to receive.
--
-- While marks tell of conversations of the queue that failed less often, a transaction receives
-- once. Of a group with such a conversation it gets one message only. So the one that fails is
-- found, and the others get past it. One whose program told of its failure is received first in its
-- transaction, so that its rollback takes along nothing that came before.
-- 0: this transaction has received already.
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
  if found and 10 <= any (broker_private.mark_states(marks)) then
    for failing in
      select f.endpoint_no, f.failures, f.session_id, e.group_no = group_number as is_here
      from broker_private.failing_conversations(queue) f
      cross join lateral (
        select x.group_no from broker_private.endpoints x where x.endpoint_no = f.endpoint_no limit 1
      ) e
      where (select true from broker_private.quarantine z where z.endpoint_no = f.endpoint_no) is null
    loop
      is_failing := is_failing or failing.failures < 5;
      if failing.is_here and failing.failures >= 5 then
        perform broker_private.quarantine_conversation(failing.endpoint_no, failing.failures, null, failing.session_id, null);
      elsif failing.is_here then
        wanted := least(wanted, 1);
      end if;
    end loop;
  end if;
  -- By key for each of the group's: a join might walk all that any queue has noted.
  if marks is not null and exists (select from broker_private.noted_failures n) and exists (
    select from broker_private.endpoints e
    where e.group_no = group_number and e.local_end is null
      and (select true from broker_private.noted_failures n where n.endpoint_no = e.endpoint_no)
  ) then
    is_failing := true;
    wanted := least(wanted, 1);
  end if;
  if exists (select from broker_private.quarantine z) then
    for conversation in
      select e.endpoint_no
      from broker_private.endpoints e
      where e.group_no = group_number
        and (select true from broker_private.quarantine z where z.endpoint_no = e.endpoint_no)
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
