-- Where a look at the queue may begin, as floors_of; from the beginning on a standby.
-- Why: floors are not in the log, and a standby refuses to look at their table.
create or replace function broker_private.diagnosed_floors(queue integer)
returns bigint[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    return '{0,0,0,0,0,0,0,0,0,0}';
  end if;
  return broker_private.floors_of(queue);
end
$$;
