-- What a RECEIVE that waits by handle or group does first.
--
-- It looks without a lock, locks the group when something is there, and looks again. Returns
-- whether it still is there. Another may have taken it before the lock came. Then the lock goes
-- back, by a subtransaction, so that a waiter keeps nobody out; a lock that the transaction had
-- before stays.
-- Locks: the group's row, if true.
-- Errors: those of has_named_message and lock_named_group.
create or replace function broker_private.lock_named_message(queue integer, handle uuid, group_id uuid)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not broker_private.has_named_message(queue, handle, group_id) then
    return false;
  end if;
  perform broker_private.lock_named_group(queue, handle, group_id);
  if not broker_private.has_named_message(queue, handle, group_id) then
    raise exception using errcode = 'SWAIT';
  end if;
  return true;
exception
  when sqlstate 'SWAIT' then
    return false;
end
$$;
