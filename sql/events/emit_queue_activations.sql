-- Tells the QUEUE_ACTIVATION notifications whose queue should be read.
--
-- Returns each notification that was told, or that was removed and why; of BROKER_QUEUE_DISABLED
-- too, those that are removed.
--
-- An event is due when messages wait, the queue and the broker are on, and none was sent since the
-- queue was last found empty. While messages remain it is sent again every 5 seconds: who reads
-- outside is unknown here. The queue was empty since the last event if none of the messages in it
-- is older than that event. That is one probe for each priority.
-- Locks: the notifications, skipping those that another session works on; then the groups of their
-- conversations.
create or replace function broker_private.emit_queue_activations()
returns table (queue_name text, notification_name text, problem text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  number integer;
  watched integer;
  this broker_private.event_notifications%rowtype;
begin
  for number, watched in
    select n.event_notification_id, w.queue_id
    from broker_private.event_notifications n
    left join broker_private.watched_queues w
      on w.event_notification_id = n.event_notification_id and w.event = 'QUEUE_ACTIVATION'
    left join broker_private.queues q on q.queue_id = w.queue_id
    left join broker_private.notified_queues l
      on l.event_notification_id = n.event_notification_id and l.queue_id = w.queue_id
    where broker_private.notification_problem(n) is not null
      or q.is_receive_enabled and not broker_private.is_poisoned(q.queue_id)
      and broker_private.broker_problem() is null
      and broker_private.has_arrivals(q.queue_id)
      and (
        l.notified_at is null
        or l.notified_at <= broker_private.clock() - interval '5 s'
        or not exists (
          select
          from generate_series(0, 9) as p (precedence)
          cross join lateral (
            select m.id from broker_private.messages m
            where m.queue_id = q.queue_id and m.precedence = p.precedence
            order by m.id
            limit 1
          ) oldest
          where oldest.id <= l.notified_up_to
        )
      )
    order by n.event_notification_id, w.queue_id
    for update of n skip locked
  loop
    select n.* into this from broker_private.event_notifications n where n.event_notification_id = number;
    -- One without a way is of several queues, and removed with the first.
    continue when this.event_notification_id is null;
    select q.name into queue_name from broker_private.queues q where q.queue_id = coalesce(watched, this.queue_id);
    notification_name := this.name;
    problem := broker_private.post_event(this, coalesce(watched, this.queue_id), 'QUEUE_ACTIVATION');
    if problem is null then
      insert into broker_private.notified_queues (event_notification_id, queue_id, notified_at, notified_up_to)
      select this.event_notification_id, watched, broker_private.clock(), s.last_value
      from broker_private.queuing_order s
      on conflict (event_notification_id, queue_id) do update
      set notified_at = excluded.notified_at, notified_up_to = excluded.notified_up_to;
    end if;
    return next;
  end loop;
end
$$;
