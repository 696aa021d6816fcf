-- How many messages the endpoint has sent, which is the next one's number.
--
-- The caller holds the group. It counts what waits, so it is for the first of many.
create or replace function broker_private.sent_so_far(e broker_private.endpoints)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_sort = off
as $$
declare
  f broker_private.endpoints%rowtype;
begin
  if e.path <> '<remote>' then
    select x.* into f from broker_private.endpoints x where x.conversation_id = e.conversation_id and x.is_initiator <> e.is_initiator;
  end if;
  -- Within this database what went straight came first: what was received and what waits for it.
  return (
    select n.next_number
    from broker_private.newest_counter(
      coalesce(f.endpoint_no, e.endpoint_no), case when f.endpoint_no is null then '<next acknowledged>' else '<next received>' end::"char"
    ) n
  ) + (
    select count(*) from (
      select from broker_private.messages x
      where x.group_no = f.group_no and x.precedence = 10 - f.priority and x.endpoint_no = f.endpoint_no and x.urgency = 2
      order by x.id
    ) m
  ) + (
    select count(*) from broker_private.incomplete_messages i where i.endpoint_no = f.endpoint_no
  ) + (
    select count(*) from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no
  );
end
$$;
