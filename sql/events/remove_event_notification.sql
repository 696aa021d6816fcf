-- Removes it, and ends its conversation, if that is there.
-- Locks: the conversation's group.
create or replace function broker_private.remove_event_notification(this broker_private.event_notifications)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  e broker_private.endpoints%rowtype;
  state text;
begin
  delete from broker_private.event_notifications n where n.event_notification_id = this.event_notification_id;
  perform from broker_private.endpoints x
  join broker_private.groups g on g.group_no = x.group_no
  where x.conversation_handle = this.conversation_handle
  for update of g;
  select x.* into e from broker_private.endpoints x where x.conversation_handle = this.conversation_handle;
  select s.state into state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no;
  if state = 'CO' then
    perform broker_private.send_end(e, null, null);
  else
    delete from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no;
    update broker_private.endpoints x set local_end = '<ended>', closed_at = broker_private.clock() where x.endpoint_no = e.endpoint_no;
  end if;
  delete from broker_private.messages m where m.group_no = e.group_no;
end
$$;
