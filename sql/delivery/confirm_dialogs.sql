-- Notes that these dialogs' first messages never come again.
--
-- Their senders have the acknowledgement (closing_time). That something else came does not tell:
-- batches follow each other before an answer is there. The caller holds the counters.
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
    where n.endpoint_no = any (endpoint_nos) and n.kind = '<next expected>' and n.next_number > 0 and not n.is_confirmed;
  end if;
end
$$;
