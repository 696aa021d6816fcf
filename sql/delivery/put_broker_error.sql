-- broker_private.put_broker_error(endpoint, number, text): an Error message made by the broker, with the negative number, goes into
-- the endpoint's own queue, once; the dialog is in error. What it still wanted to send is removed, each time: a SEND that saw the dialog
-- in order may commit later. Rows that an END CONVERSATION WITH ERROR is dropping are left to it, so this waits for nobody.
create or replace function broker_private.put_broker_error(endpoint bigint, error_number integer, description text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from broker_private.transmission_messages m
  where m.ctid = any (array(
    select t.ctid from broker_private.transmission_messages t where t.endpoint_no = endpoint for update skip locked
  ));
  delete from broker_private.transmission_status w
  where w.ctid = any (array(
    select s.ctid from broker_private.transmission_status s where s.endpoint_no = endpoint for update skip locked
  ));
  insert into broker_private.far_events (endpoint_no, event) values (endpoint, 'X') on conflict do nothing;
  if not found then
    return;
  end if;
  insert into broker_private.messages (
    group_no, endpoint_no, enqueue_time, queue_id, message_type_id, precedence, urgency, body
  )
  select
    e.group_no, e.endpoint_no, broker_private.clock(), e.queue_id, 1, 10 - e.priority, 1,
    broker_private.error_body(-abs(error_number), description)
  from broker_private.endpoints e
  where e.endpoint_no = endpoint and e.local_end is null;
  perform broker_private.note_arrival(e.queue_id) from broker_private.endpoints e where e.endpoint_no = endpoint;
end
$$;
