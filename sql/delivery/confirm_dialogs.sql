-- broker_private.confirm_dialogs(endpoints): notes that the senders have an acknowledgement of
-- these dialogs' first messages, so they never come again (closing_time). That something else came
-- does not tell: batches follow each other before an answer is there. The caller holds the
-- counters.
create or replace function broker_private.confirm_dialogs(endpoint_nos bigint[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if endpoint_nos is not null then
    update broker_private.sequence_counters n
    set is_confirmed = true
    where n.endpoint_no = any (endpoint_nos) and n.kind = 'I' and n.next_number > 0 and not n.is_confirmed;
  end if;
end
$$;
