-- broker_private.forget_plan(): trigger of endpoints. A dialog side that changes in what its send
-- plan says has no plan until its next SEND. So whoever changes one need not think of it.
-- Locks: the row of the group that has its plan, which the caller holds.
create or replace function broker_private.forget_plan()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  new.send_types := null;
  update broker_private.groups g set send_handle = null where g.send_handle = new.conversation_handle;
  return new;
end
$$;

create or replace trigger forget_plan
before update of
  group_no, expires_at, queue_id, priority, path, destination_no, far_endpoint_no, local_end
on broker_private.endpoints
for each row when (old.path <> 'U' and old.local_end is null)
execute function broker_private.forget_plan();
