-- Trigger of endpoints: drops the send plan of a dialog side that changes.
--
-- What changes is what the plan says; the next SEND makes another. So whoever changes an endpoint
-- need not think of it. An initiator that has not sent yet has neither.
-- Why no WHEN: PostgreSQL reads its text anew at each UPDATE, which costs more than the call.
-- Locks: the row of the group that has its plans, which the caller holds.
create or replace function broker_private.forget_plan()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if old.local_end is not null or old.path = '<unsent>' and old.is_initiator then
    return new;
  end if;
  if old.send_types is not null then
    new.send_types := null;
  end if;
  if exists (
    select from broker_private.groups g
    where g.group_no = old.group_no and (g.send_handle = old.conversation_handle or (g.receive_plan).endpoint_no = old.endpoint_no)
  ) then
    update broker_private.groups g
    set
      send_handle = nullif(g.send_handle, old.conversation_handle),
      receive_plan = case when (g.receive_plan).endpoint_no <> old.endpoint_no then g.receive_plan end
    where g.group_no = old.group_no;
  end if;
  return new;
end
$$;

create or replace trigger forget_plan
before update of
  group_no, expires_at, queue_id, priority, path, destination_no, far_endpoint_no, local_end
on broker_private.endpoints
for each row execute function broker_private.forget_plan();
alter table broker_private.endpoints enable always trigger forget_plan;
