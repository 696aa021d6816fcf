-- Locks the group to which an endpoint's message belongs, whatever group and queue it lies under.
--
-- Brings the group's strays home and returns its number. Null if another session holds it, or it
-- belongs to another queue now.
-- Locks: the group's row, skipping it when it is locked.
create or replace function broker_private.pick_moved(queue integer, endpoint bigint)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  own_group bigint;
  own_queue integer;
begin
  select e.group_no into own_group from broker_private.endpoints e where e.endpoint_no = endpoint;
  select g.queue_id into own_queue from broker_private.groups g where g.group_no = own_group for update skip locked;
  if not found or not exists (
    select from broker_private.endpoints e where e.endpoint_no = endpoint and e.group_no = own_group
  ) then
    return null;
  end if;
  perform broker_private.gather_moved(own_group);
  if own_queue <> queue then
    update broker_private.messages m set queue_id = own_queue where m.group_no = own_group and m.queue_id <> own_queue;
    perform broker_private.reset_floors(own_queue);
    perform broker_private.note_arrival(own_queue);
    return null;
  end if;
  return own_group;
end
$$;
