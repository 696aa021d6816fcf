-- broker_private.send_system_message(handle, message type, body): SEND by the broker itself, of a body that it has made and need not check.
-- Locks: the group's row.
create or replace function broker_private.send_system_message(handle uuid, type_id integer, content bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  conversation_group broker_private.groups%rowtype := broker_private.lock_group_of(handle);
  e broker_private.endpoints%rowtype;
  f broker_private.endpoints%rowtype;
begin
  select x.* into e from broker_private.endpoints x where x.conversation_handle = handle;
  if e.path in ('U', 'B') then
    e := broker_private.find_path(e, true);
  end if;
  if e.path = 'L' then
    select x.* into f from broker_private.endpoints x where x.endpoint_no = e.far_endpoint_no;
    if not (select q.is_enqueue_enabled from broker_private.queues q where q.queue_id = f.queue_id) then
      update broker_private.endpoints x set path = 'B' where x.endpoint_no = e.endpoint_no returning * into e;
    end if;
  end if;
  if e.path = 'L' then
    insert into broker_private.messages (group_no, endpoint_no, enqueue_time, queue_id, message_type_id, precedence, urgency, body)
    values (f.group_no, f.endpoint_no, broker_private.clock(), f.queue_id, type_id, 10 - f.priority, 2, content);
    perform broker_private.note_arrival(f.queue_id);
  elsif not exists (select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event = 'X') then
    insert into broker_private.transmission_messages (endpoint_no, enqueue_time, destination_no, message_type_id, precedence, kind, body)
    values (e.endpoint_no, broker_private.clock(), broker_private.destination_for(e), type_id, 5, 'M', content);
    perform broker_private.note_arrival(0);
  end if;
end
$$;
