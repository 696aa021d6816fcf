-- DROP EVENT NOTIFICATION.
--
-- The subscriber gets an EndDialog.
-- Errors: 208 not found, 229 not the owner of its queue.
create or replace function broker.drop_event_notification(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_event_notification(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_event_notification(caller name, notification_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.event_notifications%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  select n.* into this from broker_private.event_notifications n where n.name = notification_name for update;
  if this.event_notification_id is null then
    found := broker_private.refuse(
      208, format('The event notification "%s" is not found.', coalesce(notification_name, 'NULL')), 'broker.event_notifications lists them.'
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

comment on function broker.drop_event_notification(text) is
$$DROP EVENT NOTIFICATION. The subscriber gets an EndDialog.

name: as it was created.

Rights: the owner of its queue, or of the database.
Errors: 208, 229
Example: select broker.create_event_notification('off', 'warehouse', 'BROKER_QUEUE_DISABLED', '//shop/operators'), broker.drop_event_notification('off');$$;
