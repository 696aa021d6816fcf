-- Locks the group of a conversation, unless somebody else holds it; returns whether it did.
create or replace function broker_private.try_lock_group_of(endpoint bigint)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  perform from broker_private.endpoints e
  -- LIMIT 1: a probe of the key, whatever the planner believes of the table's size.
  cross join lateral (
    select from broker_private.groups x where x.group_no = e.group_no limit 1 for update skip locked
  ) g
  where e.endpoint_no = endpoint;
  return found;
end
$$;
