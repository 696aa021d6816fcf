-- Messages that wait for a queue of this database wait under a destination of that queue's own, so
-- that a look passes by those whose queue is off. What waits under 0 since before does so until its
-- queue is turned on.
alter table broker_private.destinations add column queue_id integer;
create index destinations_queue on broker_private.destinations (queue_id) where queue_id is not null;
-- Behind which dialog the next look at all that waits begins (deliver_local).
create sequence broker_private.local_turn as bigint minvalue 0;
-- It says of each whether its queue is on.
drop function if exists broker_private.local_destinations();
-- It gets an argument.
drop function if exists broker_private.local_dialogs_waiting();

-- Timers by queue, so that those of a queue that is off are walked past at once.
alter table broker_private.conversation_timers add column queue_id integer not null default 0;
update broker_private.conversation_timers t
set queue_id = e.queue_id
from broker_private.endpoints e
where e.endpoint_no = t.endpoint_no;
drop index broker_private.conversation_timers_due;
create index conversation_timers_due on broker_private.conversation_timers (queue_id, fires_at);

-- What is in quarantine by queue, so that much of one makes none of another wait for its next try.
alter table broker_private.quarantine add column queue_id integer not null default 0;
update broker_private.quarantine z
set queue_id = e.queue_id
from broker_private.endpoints e
where e.endpoint_no = z.endpoint_no;
drop index broker_private.quarantine_retry_at;
create index quarantine_retry_at on broker_private.quarantine (queue_id, retry_at) where retry_at is not null;
