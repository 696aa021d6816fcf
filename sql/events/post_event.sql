-- Sends the event of this queue to the notification's service.
--
-- It goes by the conversation of the notification. Returns null; or, if that conversation is over,
-- why: then the notification is removed, and the server's log says so.
-- Locks: the conversation's group.
create or replace function broker_private.post_event(
  this broker_private.event_notifications, about integer, event_name text
)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  problem text := broker_private.notification_problem(this);
  queue broker_private.queues%rowtype;
  body text;
begin
  if problem is null then
    select q.* into queue from broker_private.queues q where q.queue_id = about;
    body := '<EVENT_INSTANCE><EventType>' || event_name || '</EventType><PostTime>'
      || to_char(broker_private.clock() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS') || '</PostTime><SPID>' || pg_backend_pid()
      || '</SPID><ServerName>' || broker_private.xml_text(coalesce(nullif(current_setting('cluster_name'), ''), 'localhost'))
      || '</ServerName><LoginName>' || broker_private.xml_text(session_user) || '</LoginName><UserName>'
      || broker_private.xml_text(pg_get_userbyid(queue.owner)) || '</UserName><DatabaseName>' || broker_private.xml_text(current_database())
      || '</DatabaseName><SchemaName>' || broker_private.xml_text(queue.view_schema) || '</SchemaName><ObjectName>'
      || broker_private.xml_text(queue.name) || '</ObjectName><ObjectType>QUEUE</ObjectType></EVENT_INSTANCE>';
    perform broker_private.send_system_message(this.conversation_handle, 4, convert_to(body, 'UTF8'));
    problem := broker_private.notification_problem(this);
  end if;
  if problem is not null then
    perform broker_private.remove_event_notification(this);
    raise log 'pybroker: the event notification "%" in database "%" is dropped: %', this.name, current_database(), problem;
  end if;
  return problem;
end
$$;
