-- Quarantines a conversation, whose first message is the one that failed.
--
-- It waits with all others for the next try, so much later, or (null) for redrive or discard.
-- Returns whether there was a message. The caller holds the group.
create or replace function broker_private.quarantine_conversation(
  endpoint bigint, failed integer, error_text text, session_id integer, retry_in interval
)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_sort = off
as $$
declare
  is_quarantined boolean;
  right_now constant timestamp with time zone := broker_private.clock();
begin
  insert into broker_private.quarantine (
    endpoint_no, message_id, failures, last_error, failed_in, quarantined_at, retry_at, retries, queue_id
  )
  select
    e.endpoint_no, m.id, failed,
    coalesce(error_text, (select n.last_error from broker_private.noted_failures n where n.endpoint_no = endpoint)), session_id,
    right_now, right_now + retry_in,
    coalesce((select n.retries from broker_private.noted_failures n where n.endpoint_no = endpoint), 0) + (retry_in is not null)::integer,
    e.queue_id
  from broker_private.endpoints e
  cross join lateral (
    select x.id from broker_private.messages x
    where x.group_no = e.group_no and x.precedence = 10 - e.priority and x.endpoint_no = e.endpoint_no
    order by x.urgency, x.id
    limit 1
  ) m
  where e.endpoint_no = endpoint and e.local_end is null
  on conflict do nothing;
  is_quarantined := found;
  perform broker_private.move_aside(endpoint);
  delete from broker_private.noted_failures n where n.endpoint_no = endpoint;
  return is_quarantined;
end
$$;
