-- DROP QUEUE, and its view, with the caller's rights.
--
-- Its event notifications go with it. Waits for the transactions that have received from the queue:
-- their marks are locked until they end.
-- Errors: 208 not found, 229 not the owner, 3716 a service uses it.
create or replace function broker.drop_queue(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  view_schema name;
begin
  loop
    view_schema := broker_private.drop_queue(current_user, name);
    exit when view_schema is not null;
    done := broker_private.vouch(current_user);
  end loop;
  if exists (
    select from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = view_schema and c.relname = drop_queue.name and c.relkind = 'v'
  ) then
    execute format('drop view %I.%I', view_schema, name);
  end if;
exception
  when dependent_objects_still_exist then
    found := broker_private.refuse(
      3716, format('The queue "%s" cannot be dropped: something depends on its view.', name), 'Drop what depends on it first.'
    );
end
$$;

create or replace function broker_private.drop_queue(caller name, queue_name text)
returns name
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.queues%rowtype;
  number integer;
  notification broker_private.event_notifications%rowtype;
  service_name text;
  mark regclass;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_queue(queue_name);
  perform broker_private.require_ownership(caller, this.owner, 'queue', this.name);
  select s.name into service_name from broker_private.services s where s.queue_id = this.queue_id limit 1;
  if service_name is not null then
    found := broker_private.refuse(
      3716, format('The queue "%s" cannot be dropped: service "%s" uses it.', this.name, service_name),
      'Drop the services that use it first, or move them to another queue.'
    );
  end if;
  for number in
    select n.event_notification_id from broker_private.event_notifications n
    where n.queue_id = this.queue_id
    order by n.event_notification_id
    for update
  loop
    select n.* into notification from broker_private.event_notifications n where n.event_notification_id = number;
    perform broker_private.remove_event_notification(notification);
  end loop;
  delete from broker_private.permissions p where p.class = '<queue>' and p.securable_id = this.queue_id;
  delete from broker_private.queue_floors f where f.queue_id = this.queue_id;
  delete from broker_private.queues q where q.queue_id = this.queue_id;
  foreach mark in array this.marks loop
    execute format('drop sequence %s', mark);
  end loop;
  perform broker_private.wake_sleepers(this.queue_id);
  return this.view_schema;
end
$$;

comment on function broker.drop_queue(text) is
$$DROP QUEUE. Its view and its event notifications go with it. One that a service has is refused.

name: as it was created.

Rights: the owner of the queue, or of the database; to own the view.
Locks: it waits for transactions that have received from the queue.
Errors: 208, 229, 3716
Example: select broker.create_queue('returns'), broker.drop_queue('returns');$$;
