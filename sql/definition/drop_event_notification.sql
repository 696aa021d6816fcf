-- DROP EVENT NOTIFICATION.
--
-- The subscriber gets an EndDialog.
-- Errors: 153 of several queues, and none is given, 208 not found, 229 not the owner of its queue.
create or replace function broker.drop_event_notification(name text, queue text default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_event_notification(current_user, name, queue);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_event_notification(
  caller name, notification_name text, queue_name text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.event_notifications%rowtype;
  watched integer;
  place text := '';
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if queue_name is not null then
    watched := (broker_private.find_queue(queue_name)).queue_id;
    place := format(' on the queue "%s"', queue_name);
  end if;
  select n.* into this
  from broker_private.event_notifications n
  where n.name = notification_name and (watched is null or n.queue_id = watched)
  order by n.queue_id nulls first
  limit 1
  for update;
  if this.event_notification_id is null then
    found := broker_private.refuse(
      208, format('The event notification "%s" is not found%s.', coalesce(notification_name, 'NULL'), place),
      'broker.event_notifications lists them.'
    );
  end if;
  if watched is null and this.queue_id is not null and exists (
    select from broker_private.event_notifications n
    where n.name = notification_name and n.event_notification_id <> this.event_notification_id
  ) then
    found := broker_private.refuse(
      153, format('Several queues have an event notification "%s".', this.name),
      format('Name its queue: SELECT broker.drop_event_notification(%L, queue => ...)', this.name)
    );
  end if;
  perform broker_private.require_ownership(
    caller,
    coalesce(
      (select q.owner from broker_private.queues q where q.queue_id = this.queue_id),
      'pg_database_owner'::regrole
    ),
    'event notification', this.name
  );
  perform broker_private.remove_event_notification(this);
  return true;
end
$$;

comment on function broker.drop_event_notification(text, text) is
$$DROP EVENT NOTIFICATION. The subscriber gets an EndDialog.

name: as it was created.
queue: of which it is. NULL is the database's, or else the only one of that name.

Rights: the owner of its queue, or of the database.
Errors: 153, 208, 229
Example: select broker.create_event_notification('off', 'warehouse', 'BROKER_QUEUE_DISABLED', '//shop/operators'), broker.drop_event_notification('off');$$;
