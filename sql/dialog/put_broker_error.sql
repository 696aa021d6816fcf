-- Puts an Error message made by the broker into the endpoint's own queue, once.
--
-- It has the negative number. The dialog is in error. Returns whether it was this call that did it:
-- only then is there anything to tell the far side. What the endpoint still wanted to send is
-- removed, each time: a SEND that saw the dialog in order may commit later. Not so an Error that
-- tells the far side of the first time (tell_far_side). SEND looks for no Error on a straight
-- dialog (path local). Whoever calls this for one marks the send plans (mark_plans) too, unless its
-- lifetime is over, which SEND sees.
create or replace function broker_private.put_broker_error(endpoint bigint, error_number integer, description text)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  is_first boolean;
begin
  insert into broker_private.far_events (endpoint_no, event) values (endpoint, '<far error>') on conflict do nothing;
  is_first := found;
  perform broker_private.drop_unsent(endpoint, is_first);
  if not is_first then
    return false;
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
  return true;
end
$$;
