-- One event notification may be of all queues: each of them has its own last event.
-- The last QUEUE_ACTIVATION that a notification had from a queue, and the newest message at that time.
create table broker_private.notified_queues (
  event_notification_id integer not null references broker_private.event_notifications on delete cascade,
  queue_id integer not null references broker_private.queues on delete cascade,
  notified_at timestamp with time zone not null,
  notified_up_to bigint not null,
  primary key (event_notification_id, queue_id)
);
create index notified_queues_queue on broker_private.notified_queues (queue_id);
insert into broker_private.notified_queues (event_notification_id, queue_id, notified_at, notified_up_to)
select n.event_notification_id, n.queue_id, n.notified_at, n.notified_up_to
from broker_private.event_notifications n
where n.notified_at is not null and n.notified_up_to is not null;
alter table broker_private.event_notifications
  alter column queue_id drop not null,
  drop column notified_at,
  drop column notified_up_to,
  add column has_fan_in boolean not null default false;
drop function if exists broker.create_event_notification(text, text, text, text, text);
drop function if exists broker_private.create_event_notification(name, text, text, text, text, text);
drop function if exists broker_private.post_event(broker_private.event_notifications);
