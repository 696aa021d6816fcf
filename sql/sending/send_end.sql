-- Ends this side and tells the far side by EndDialog or Error.
--
-- Within this database the far side is told at once and this side is closed. Otherwise it is DO
-- until the far broker acknowledges, or EndDialog is no longer behind an incomplete message. The
-- caller holds the group. On a straight dialog (path local) the far side's SEND sees this end by
-- local_end alone. So the far event and local_end are written in one transaction.
create or replace function broker_private.send_end(e broker_private.endpoints, error_code integer, error_description text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  f broker_private.endpoints%rowtype;
  content bytea := case when error_code is not null then broker_private.error_body(error_code, error_description) end;
  end_kind "char" := case when error_code is null then '<end dialog>' else '<error>' end;
begin
  if e.path <> '<remote>' then
    e := broker_private.find_path(e);
  end if;
  if e.path in ('<local>', '<behind incomplete>') then
    select x.* into f from broker_private.endpoints x where x.endpoint_no = e.far_endpoint_no;
    if not (select q.is_enqueue_enabled from broker_private.queues q where q.queue_id = f.queue_id) and f.local_end is null then
      e.path := '<delayed>';
    end if;
  end if;
  if e.path = '<behind incomplete>' and end_kind = '<end dialog>' and f.local_end is null then
    perform broker_private.hold_messages(f, 2, '<end dialog>', array[''::bytea], true);
    update broker_private.endpoints x set local_end = '<ended>' where x.endpoint_no = e.endpoint_no;
  elsif e.path in ('<local>', '<behind incomplete>') then
    if f.local_end is null then
      insert into broker_private.far_events (endpoint_no, event) values (f.endpoint_no, end_kind) on conflict do nothing;
      insert into broker_private.messages (
        group_no, endpoint_no, enqueue_time, queue_id, message_type_id, precedence, urgency, body
      )
      values (
        f.group_no, f.endpoint_no, broker_private.clock(), f.queue_id, case end_kind when '<end dialog>' then 2 else 1 end,
        10 - f.priority, case end_kind when '<end dialog>' then 2 else 1 end, content
      );
      perform broker_private.note_arrival(f.queue_id);
    end if;
    update broker_private.endpoints x set local_end = end_kind, closed_at = broker_private.clock() where x.endpoint_no = e.endpoint_no;
  else
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
  end if;
end
$$;
