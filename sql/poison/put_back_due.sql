-- Puts back the conversations whose next try is due, those of one queue or (null) of all.
--
-- Returns how many. What has failed so far goes along, so that a conversation is tried as often as
-- its program said.
-- Each queue has its own line: what of one is due makes none of another wait.
-- Locks: the group's row of each; one that somebody else holds is left for the next time. At most
-- 100 of a queue at once, of those that nobody holds: who holds many stops no others.
-- Plan: quarantine_retry_at, from one queue to the next.
create or replace function broker_private.put_back_due(queue integer)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  due bigint;
  failing broker_private.quarantine%rowtype;
  done integer := 0;
  place integer := coalesce(queue, -1);
  right_now constant timestamp with time zone := broker_private.clock();
begin
  loop
    if queue is null then
      place := (
        select z.queue_id from broker_private.quarantine z
        where z.retry_at is not null and z.queue_id > place
        order by z.queue_id
        limit 1
      );
      exit when place is null;
    end if;
    for due in
      select z.endpoint_no
      from broker_private.quarantine z
      -- LIMIT 1: a probe of the key for each that is due, whatever the planner believes of the tables' sizes.
      cross join lateral (
        select x.group_no from broker_private.endpoints x where x.endpoint_no = z.endpoint_no limit 1
      ) e
      cross join lateral (
        select x.group_no from broker_private.groups x where x.group_no = e.group_no limit 1 for update skip locked
      ) g
      where z.queue_id = place and z.retry_at <= right_now
      order by z.retry_at
      limit 100
    loop
      -- It may have moved to another group meanwhile.
      continue when not broker_private.try_lock_group_of(due);
      delete from broker_private.quarantine z
      where z.endpoint_no = due and z.retry_at <= right_now
      returning z.* into failing;
      continue when not found;
      -- One may be noted already, by a session whose snapshot is from before the quarantine.
      insert into broker_private.noted_failures as n (endpoint_no, failures, last_error, retries)
      values (due, failing.failures, coalesce(failing.last_error, ''), failing.retries)
      on conflict (endpoint_no) do update
      set
        failures = greatest(n.failures, excluded.failures),
        last_error = excluded.last_error,
        retries = greatest(n.retries, excluded.retries);
      perform broker_private.put_back(due);
      done := done + 1;
    end loop;
    exit when queue is not null;
  end loop;
  return done;
end
$$;
