-- broker_private.take_fresh(destination, lane, lanes, max messages, max bytes, largest body,
-- fresh): take_plain, after it has locked the counters of these dialogs, of which nothing has gone.
-- Null if somebody holds one.
-- Locks: those counters, in the order of their endpoints, skipping those that somebody holds.
create or replace function broker_private.take_fresh(
  destination integer, lane integer, lanes integer, max_messages integer, max_bytes bigint, largest_body bigint,
  fresh bigint[]
)
returns broker_private.batch
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  held bigint;
begin
  perform from unnest(fresh) as u (endpoint_no)
  cross join lateral (
    select from broker_private.sequence_counters x
    where x.endpoint_no = u.endpoint_no and x.kind = 'A'
    order by x.epoch desc
    limit 1
    for update skip locked
  ) c;
  get diagnostics held = row_count;
  if held < cardinality(fresh) then
    return null;
  end if;
  return broker_private.take_plain(destination, lane, lanes, max_messages, max_bytes, largest_body, fresh);
end
$$;
