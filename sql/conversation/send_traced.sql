-- broker.send in a session that has set pybroker.traceparent.
--
-- So a SEND in any other session pays for a look at the setting alone. It does what broker.send
-- does for nearly all, and notes the context with the same statement that inserts the message. All
-- else is send_slowly's, where put_messages notes it. Returns false, having done nothing, where the
-- setting is no trace context. Called by broker_private.send alone, under what that sets for its
-- plans.
-- Locks: as broker.send.
-- Plan: as broker.send's.
create or replace function broker_private.send_traced(sender name, handle uuid, type_name text, content bytea)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  context constant text := broker_private.valid_traceparent(current_setting('pybroker.traceparent', true));
  made bigint;
  target bigint;
  place integer;
  level smallint;
  type_id integer;
begin
  if context is null then
    return false;
  end if;
  select g.send_made, g.send_target, g.send_place, g.send_precedence, (g.send_types -> type_name)::integer
  into made, target, place, level, type_id
  from broker_private.groups g
  where g.send_handle = handle and g.send_expires_at > broker_private.clock()
    and pg_has_role(sender, g.send_receiver, 'USAGE') is not false
  for update;
  if level >= 0 and type_id is not null then
    with put as (
      insert into broker_private.messages (group_no, endpoint_no, queue_id, message_type_id, precedence, urgency, body)
      select f.group_no, target, place, type_id, level, 2, nullif(content, '')
      from broker_private.endpoints f
      where f.endpoint_no = target and f.local_end is null and made > pg_sequence_last_value('broker_private.plan_mark')
      returning id
    )
    insert into broker_private.traceparents (endpoint_no, queuing_order, noted_at, traceparent)
    select target, p.id, broker_private.clock(), context from put p;
  elsif type_id is not null then
    with put as (
      insert into broker_private.transmission_messages (endpoint_no, destination_no, message_type_id, precedence, kind, body)
      select target, place, type_id, smallint '-1' - level, '<message>', nullif(content, '')
      where not exists (
          select from broker_private.far_events v where v.endpoint_no = target and v.event in ('<far end>', '<far error>')
        )
        and made > pg_sequence_last_value('broker_private.plan_mark')
      returning id
    )
    insert into broker_private.traceparents (endpoint_no, queuing_order, noted_at, traceparent)
    select target, p.id, broker_private.clock(), context from put p;
  else
    return broker_private.send_slowly(sender, handle, type_name, array[content]);
  end if;
  if not found then
    return broker_private.send_slowly(sender, handle, type_name, array[content]);
  end if;
  perform broker_private.note_arrival(case when level >= 0 then place else 0 end);
  return true;
end
$$;
