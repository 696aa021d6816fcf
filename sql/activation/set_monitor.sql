-- What CREATE and ALTER QUEUE do to the monitor of a queue with a procedure.
--
-- Recycled, it begins anew, as nothing else makes it when it is stuck; raised, the next reader is
-- due at once.
-- Locks: the monitor's row.
create or replace function broker_private.set_monitor(queue integer, is_recycled boolean, is_raised boolean)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.create_receive_marks(queue);
  insert into broker_private.queue_monitors (queue_id) values (queue) on conflict do nothing;
  if is_recycled then
    update broker_private.queue_monitors m
    set state = 'INACTIVE', is_stuck = false, readers_wanted = 0, ramp_from = '-infinity', not_before = '-infinity', returns_in_vain = 0
    where m.queue_id = queue;
  elsif is_raised then
    update broker_private.queue_monitors m set ramp_from = '-infinity' where m.queue_id = queue;
  end if;
end
$$;
