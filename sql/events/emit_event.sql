-- Tells every event notification of this event that watches the queue, in this transaction.
--
-- A notification whose conversation is over is removed; it never fails what raised the event.
-- Locks: the notifications, then the groups of their conversations.
create or replace function broker_private.emit_event(queue integer, event_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  number integer;
  this broker_private.event_notifications%rowtype;
begin
  for number in
    select n.event_notification_id from broker_private.event_notifications n
    where n.event_notification_id in (
      select w.event_notification_id from broker_private.watched_queues w
      where w.queue_id = queue and w.event = event_name
    )
    order by n.event_notification_id
    for update
  loop
    select n.* into this from broker_private.event_notifications n where n.event_notification_id = number;
    perform broker_private.post_event(this, queue, event_name);
  end loop;
end
$$;
