-- An event notification has several events, and its name is unique for its queue, or for the database.
--
-- Two views read what goes. Users' own views may depend on them, so each is emptied, and its file
-- makes it again.
do $$
declare
  this record;
begin
  for this in
    select c.oid::regclass as name,
      string_agg(
        format(
          'null::%s%s as %I', format_type(a.atttypid, a.atttypmod),
          ' collate ' || nullif(a.attcollation, 0)::regcollation, a.attname
        ), ', ' order by a.attnum
      ) as columns
    from pg_catalog.pg_class c
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.oid in (to_regclass('broker_private.watched_queues'), to_regclass('broker.event_notifications'))
    group by c.oid
  loop
    execute format('create or replace view %s as select %s where false', this.name, this.columns);
  end loop;
end
$$;
delete from broker_private.applied_sql
where path in ('catalog/watched_queues.sql', 'monitoring/event_notifications.sql');

alter table broker_private.event_notifications
  add column events text[] check (
    cardinality(events) > 0 and events <@ array['QUEUE_ACTIVATION', 'BROKER_QUEUE_DISABLED']
  );
update broker_private.event_notifications set events = array[event];
alter table broker_private.event_notifications
  alter column events set not null,
  drop column event,
  drop constraint event_notifications_name_key,
  add constraint event_notifications_scope unique nulls not distinct (queue_id, name);
-- The constraint's own index begins with the queue.
drop index broker_private.event_notifications_queue;

-- Their arguments change.
drop function if exists broker.drop_event_notification(text);
drop function if exists broker_private.drop_event_notification(name, text);
drop function if exists broker_private.post_event(broker_private.event_notifications, integer);
