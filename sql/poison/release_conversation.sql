-- Takes a conversation out of quarantine: that is redrive and discard.
--
-- Returns how many messages came back.
-- Locks: the group's row.
create or replace function broker_private.release_conversation(role_name name, handle uuid, is_redriven boolean)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  e broker_private.endpoints%rowtype;
  failing bigint;
  is_numbered_later boolean;
begin
  e := broker_private.lock_group_of(handle);
  perform broker_private.require_receive(role_name, e.queue_id);
  -- It may have failed for the fifth time with nobody there yet to quarantine it.
  perform broker_private.set_aside(e.queue_id, e.group_no, null);
  delete from broker_private.quarantine z where z.endpoint_no = e.endpoint_no returning z.message_id into failing;
  if failing is null then
    found := broker_private.refuse(
      8427, format('The conversation "%s" is not quarantined.', handle), 'broker.quarantine lists those that are.'
    );
  end if;
  if not is_redriven then
    delete from broker_private.quarantined_messages m
    where m.endpoint_no = e.endpoint_no and m.id = failing
    returning m.sequence_number is null and m.urgency = 2 into is_numbered_later;
    if is_numbered_later then
      update broker_private.sequence_counters s
      set next_number = s.next_number + 1, epoch = (s.next_number + 1) >> 7
      where s.ctid = (
        select n.location from broker_private.newest_counter(e.endpoint_no, '<next received>') n
      );
    end if;
  end if;
  return broker_private.put_back(e.endpoint_no);
end
$$;
