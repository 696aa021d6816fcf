-- Ends a side that has nothing to tell the far side.
--
-- No message has gone, or the far side has ended or failed. If the broker's own Error is still on
-- its way to the far side (tell_far_side) the side is DO until it is acknowledged. The caller holds
-- the group. Returns true.
create or replace function broker_private.close_side(e broker_private.endpoints)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  with dropped as (
    delete from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no and t.kind <> '<error>'
  )
  update broker_private.endpoints x
  set
    local_end = '<ended>',
    -- Its Error may wait for an acknowledgement that never comes.
    is_lifetime_over = false,
    closed_at = case
      when not exists (select from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no and t.kind = '<error>')
      then broker_private.closing_time(e)
    end
  where x.endpoint_no = e.endpoint_no;
  return true;
end
$$;
