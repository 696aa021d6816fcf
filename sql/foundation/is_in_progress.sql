-- Whether the transaction is running that a row's xmax names.
--
-- A locked row of a table that nobody updates is so seen without trying the lock. A multixact is
-- taken for a transaction: the answer is then false, mostly.
create or replace function broker_private.is_in_progress(locker xid)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  newest constant bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  distance bigint := (locker::text::bigint - newest) & 4294967295;
begin
  if distance >= 2147483648 then
    distance := distance - 4294967296;
  end if;
  if locker::text = '0' or newest + distance < 3 then
    return false;
  end if;
  -- One that began after the snapshot has no status yet that could be asked for.
  return distance >= 0 or coalesce(pg_xact_status((newest + distance)::text::xid8) = 'in progress', false);
end
$$;
