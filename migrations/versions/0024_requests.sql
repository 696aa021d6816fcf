-- When the dynamic routing service was asked: what it doesn't answer in a day is over. What is out
-- already counts as asked now; it had a lifetime of 68 years.
alter table broker_private.configuration_requests add column asked_at timestamp with time zone;
-- An empty database has no clock yet, and no requests.
do $$
begin
  if exists (select from broker_private.configuration_requests) then
    update broker_private.configuration_requests set asked_at = broker_private.clock();
    update broker_private.endpoints e
    set expires_at = q.asked_at + interval '1 day'
    from broker_private.configuration_requests q
    join broker_private.endpoints r on r.conversation_handle = q.conversation_handle
    where q.answered_at is null and e.conversation_id = r.conversation_id;
  end if;
end
$$;
alter table broker_private.configuration_requests alter column asked_at set not null;
create index configuration_requests_unanswered on broker_private.configuration_requests (asked_at) where answered_at is null;

-- Behind which message the next look for dialogs without a broker begins (spread_dialogs).
alter table broker_private.destinations add column spread_after bigint not null default 0;
