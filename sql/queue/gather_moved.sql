-- Brings home what was sent to the group's conversations while they moved into it.
--
-- It lies under their old groups. Returns how many messages. Only the holder of an endpoint's group
-- does that: who holds the old group must leave them. The caller holds the group, and looks at its
-- messages again if any came: they are older than what followed on their conversation.
create or replace function broker_private.gather_moved(group_number bigint)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  gathered integer;
  from_elsewhere integer;
begin
  update broker_private.messages m
  set group_no = e.group_no, queue_id = e.queue_id
  from broker_private.moved_conversations v
  join broker_private.endpoints e on e.endpoint_no = v.endpoint_no
  where v.group_no = group_number and m.group_no = v.old_group_no and m.endpoint_no = v.endpoint_no and m.queue_id <> e.queue_id;
  get diagnostics from_elsewhere = row_count;
  if from_elsewhere > 0 then
    perform broker_private.reset_floors(g.queue_id) from broker_private.groups g where g.group_no = group_number;
  end if;
  update broker_private.messages m
  set group_no = e.group_no
  from broker_private.moved_conversations v
  join broker_private.endpoints e on e.endpoint_no = v.endpoint_no
  where v.group_no = group_number and m.group_no = v.old_group_no and m.endpoint_no = v.endpoint_no and m.queue_id = e.queue_id;
  get diagnostics gathered = row_count;
  return gathered + from_elsewhere;
end
$$;
