-- Ends requests for configuration that nobody answered in a day, and forgets old answers.
--
-- Nobody may wait any more for what was asked, so nobody else would note that its lifetime is over.
-- Locks: at most 1,000 requests, skipping those that others hold, and their groups.
-- Plan: configuration_requests_unanswered and configuration_requests_answered, as far as they are
-- due.
create or replace function broker_private.forget_requests()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  moment constant timestamp with time zone := broker_private.clock();
  request broker_private.configuration_requests%rowtype;
begin
  for request in
    select x.kind, x.service_name, x.conversation_handle, x.answered_at, x.asked_at
    from broker_private.configuration_requests x
    where x.answered_at is null and x.asked_at <= moment - interval '1 day'
    order by x.asked_at
    limit 1000
    for update skip locked
  loop
    if broker_private.is_request_over(request) then
      perform broker_private.note_answer(request);
    end if;
  end loop;
  -- An answer counts for ten minutes (request_configuration). Then it is as if nobody had asked.
  delete from broker_private.configuration_requests q
  where q.ctid = any (array(
    select x.ctid from broker_private.configuration_requests x
    where x.answered_at <= moment - interval '10 min'
    order by x.answered_at
    limit 10000
    for update skip locked
  ));
end
$$;
