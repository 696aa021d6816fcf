-- Notes that a request for configuration is over, and ends this side of its conversation.
--
-- A service in this database that never received the request has nothing to end: its side goes
-- too. So requests that nobody reads leave nothing in its queue.
-- Locks: the request's row, which the caller has; the group. One that somebody else holds is left
-- for the next time.
create or replace function broker_private.note_answer(request broker_private.configuration_requests)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  e broker_private.endpoints%rowtype;
begin
  select x.* into e from broker_private.endpoints x where x.conversation_handle = request.conversation_handle;
  if e.endpoint_no is not null then
    if not broker_private.try_lock_group_of(e.endpoint_no) then
      return;
    end if;
    update broker_private.endpoints x set local_end = '<ended>', closed_at = broker_private.clock() where x.endpoint_no = e.endpoint_no;
    delete from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no;
    delete from broker_private.messages m where m.group_no = e.group_no;
    select x.* into e from broker_private.endpoints x
    where x.conversation_id = e.conversation_id and not x.is_initiator and x.local_end is null;
    if e.endpoint_no is not null and broker_private.try_lock_group_of(e.endpoint_no) and exists (
      select from broker_private.messages m
      where m.group_no = e.group_no and m.precedence = 10 - e.priority and m.endpoint_no = e.endpoint_no and m.message_type_id <> 1
    ) then
      perform broker_private.close_side(e);
      delete from broker_private.messages m
      where m.group_no = e.group_no and m.precedence = 10 - e.priority and m.endpoint_no = e.endpoint_no;
    end if;
  end if;
  update broker_private.configuration_requests q set answered_at = broker_private.clock()
  where q.kind = request.kind and q.service_name = request.service_name;
end
$$;
