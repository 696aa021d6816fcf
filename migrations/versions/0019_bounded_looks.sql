-- After which conversation in quarantine the next look begins (settle_poison).
create sequence broker_private.quarantine_turn as bigint minvalue 0;
create index quarantine_unexplained on broker_private.quarantine (failed_in) where last_error is null;

-- Ends that were acknowledged and are still to be closed; sweep removes the event when it closes them.
create index far_events_to_close on broker_private.far_events (endpoint_no) where event = 'A';

-- Whether both sides were told that the lifetime of the dialog is over, as far as they are here: then fire_timers need not look again.
alter table broker_private.endpoints add column is_lifetime_over boolean not null default false;
drop index broker_private.endpoints_lifetime;
create index endpoints_lifetime on broker_private.endpoints (expires_at) where closed_at is null and not is_lifetime_over;
