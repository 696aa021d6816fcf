-- Ends this side and tells the far side by EndDialog or Error.
--
-- Within this database the far side is told at once and this side is closed. Otherwise it is DO
-- until the far broker acknowledges, or EndDialog is no longer behind an incomplete message. The
-- caller holds the group. On a straight dialog (path local) the far side's SEND sees this end by
-- local_end alone. So the far event and local_end are written in one transaction. Returns true.
create or replace function broker_private.send_end(e broker_private.endpoints, error_code integer, error_description text)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  content bytea := case when error_code is not null then broker_private.error_body(error_code, error_description) end;
  end_kind "char" := case when error_code is null then '<end dialog>' else '<error>' end;
  far record;
  is_awake boolean;
begin
  if e.path not in ('<local>', '<remote>') then
    e := broker_private.find_path(e);
  end if;
  if e.path in ('<local>', '<behind incomplete>') then
    select f.endpoint_no, f.group_no, f.queue_id, f.priority, f.local_end is not null as has_ended, q.is_enqueue_enabled, b.is_broker_enabled
    into far
    from broker_private.endpoints f
    join broker_private.queues q on q.queue_id = f.queue_id
    join broker_private.broker_instance b on b.is_the_only_row
    where f.endpoint_no = e.far_endpoint_no;
    if not far.is_broker_enabled then
      e := broker_private.find_path(e);
    elsif not far.is_enqueue_enabled and not far.has_ended then
      e.path := '<delayed>';
    end if;
  end if;
  if e.path not in ('<local>', '<behind incomplete>') then
    if end_kind = '<error>' then
      delete from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no;
    end if;
    insert into broker_private.transmission_messages (
      endpoint_no, enqueue_time, destination_no, message_type_id, precedence, kind, body
    )
    values (
      e.endpoint_no, broker_private.clock(), broker_private.destination_for(e), case end_kind when '<end dialog>' then 2 else 1 end,
      10 - e.priority, end_kind, content
    );
    perform broker_private.note_arrival(0);
    update broker_private.endpoints x set local_end = end_kind, path = e.path where x.endpoint_no = e.endpoint_no;
  elsif e.path = '<behind incomplete>' and end_kind = '<end dialog>' and not far.has_ended then
    perform broker_private.hold_messages(f, 2, '<end dialog>', array[''::bytea], true)
    from broker_private.endpoints f
    where f.endpoint_no = far.endpoint_no;
    update broker_private.endpoints x set local_end = '<ended>' where x.endpoint_no = e.endpoint_no;
  elsif far.has_ended is not false then
    update broker_private.endpoints x set local_end = end_kind, closed_at = broker_private.clock() where x.endpoint_no = e.endpoint_no;
  else
    with told as (
      insert into broker_private.far_events (endpoint_no, event) values (far.endpoint_no, end_kind) on conflict do nothing
    ),
    ended as (
      update broker_private.endpoints x set local_end = end_kind, closed_at = broker_private.clock() where x.endpoint_no = e.endpoint_no
    )
    insert into broker_private.messages (
      group_no, endpoint_no, enqueue_time, queue_id, message_type_id, precedence, urgency, body
    )
    values (
      far.group_no, far.endpoint_no, broker_private.clock(), far.queue_id, case end_kind when '<end dialog>' then 2 else 1 end,
      10 - far.priority, case end_kind when '<end dialog>' then 2 else 1 end, content
    )
    returning pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), queue_id) into is_awake;
    if not is_awake then
      perform broker_private.wake_sleepers(far.queue_id);
    end if;
  end if;
  return true;
end
$$;
