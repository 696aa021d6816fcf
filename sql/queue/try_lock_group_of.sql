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
  join broker_private.groups g on g.group_no = e.group_no
  where e.endpoint_no = endpoint
  for update of g skip locked;
  return found;
end
$$;
