-- broker_private.set_aside(queue, group, wanted): what RECEIVE does first with a group that it has locked, on a queue that quarantines. Quarantines the group's
-- conversations that have failed five times in a row, moves what arrived for quarantined ones out of the way, and returns how many messages to receive.
--
-- Of a group in which a conversation has failed less than that, a transaction gets one message: so the one that fails is found, and the others get past it. 0:
-- this transaction has got it already.
-- Locks: none more; the caller holds the group.
create or replace function broker_private.set_aside(queue integer, group_number bigint, wanted bigint)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  failing record;
  conversation record;
begin
  for failing in
    select f.endpoint_no, f.failures, f.is_received_here
    from broker_private.failing_conversations(queue) f
    join broker_private.endpoints e on e.endpoint_no = f.endpoint_no
    where e.group_no = group_number and not exists (select from broker_private.quarantine z where z.endpoint_no = f.endpoint_no)
  loop
    if failing.failures >= 5 then
      perform broker_private.quarantine_conversation(failing.endpoint_no, failing.failures, null);
    else
      wanted := least(wanted, case when failing.is_received_here then 0 else 1 end);
    end if;
  end loop;
  for conversation in
    select z.endpoint_no
    from broker_private.endpoints e
    join broker_private.quarantine z on z.endpoint_no = e.endpoint_no
    where e.group_no = group_number
  loop
    perform broker_private.move_aside(conversation.endpoint_no);
  end loop;
  if exists (
    select from broker_private.endpoints e
    join broker_private.noted_failures n on n.endpoint_no = e.endpoint_no
    where e.group_no = group_number
  ) then
    wanted := least(wanted, 1);
  end if;
  return wanted;
end
$$;
