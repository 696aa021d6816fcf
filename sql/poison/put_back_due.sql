-- Puts back the conversations whose next try is due, those of one queue or (null) of all.
--
-- Returns how many. What has failed so far goes along, so that a conversation is tried as often as
-- its program said.
-- Locks: the group's row of each; one that somebody else holds is left for the next time. At most
-- 100 at once.
-- Plan: quarantine_retry_at.
create or replace function broker_private.put_back_due(queue integer)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  due bigint;
  done integer := 0;
  right_now constant timestamp with time zone := broker_private.clock();
begin
  for due in
    select z.endpoint_no
    from broker_private.quarantine z
    join broker_private.endpoints e on e.endpoint_no = z.endpoint_no
    where z.retry_at <= right_now and (queue is null or e.queue_id = queue)
    order by z.retry_at
    limit 100
  loop
    continue when not broker_private.try_group_of(due);
    with left_quarantine as (
      delete from broker_private.quarantine z
      where z.endpoint_no = due and z.retry_at <= right_now
      returning z.endpoint_no, z.failures, z.last_error, z.retries
    )
    insert into broker_private.noted_failures (endpoint_no, failures, last_error, retries)
    select l.endpoint_no, l.failures, coalesce(l.last_error, ''), l.retries from left_quarantine l
    on conflict do nothing;
    if found then
      perform broker_private.put_back(due);
      done := done + 1;
    end if;
  end loop;
  return done;
end
$$;
