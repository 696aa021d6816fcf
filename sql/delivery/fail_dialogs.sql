-- The far broker refused these dialogs for good.
--
-- Each gets one Error message, also if the far broker's own Error arrives at the same time. One
-- whose far side has ended gets none: its application is told of that, and nothing else is to come.
-- Locks: the counters that deliver locks, in its order.
create or replace function broker_private.fail_dialogs(endpoint_nos bigint[], codes integer[], descriptions text[])
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  perform from broker_private.sequence_counters n
  where n.endpoint_no = any (endpoint_nos) and n.kind = '<next expected>'
  order by n.endpoint_no, n.epoch
  for update;
  -- What the far broker has refused is not sent again, the Error of this side neither.
  perform
    case when x.endpoint_no is null then broker_private.put_broker_error(f.endpoint_no, f.code, f.description) end,
    broker_private.drop_unsent(f.endpoint_no, true)
  from unnest(endpoint_nos, codes, descriptions) as f (endpoint_no, code, description)
  left join broker_private.far_events x on x.endpoint_no = f.endpoint_no and x.event = '<far end>'
  order by f.endpoint_no;
  -- A side that has ended already hears nothing more: its end counts as acknowledged.
  insert into broker_private.far_events (endpoint_no, event)
  select e.endpoint_no, '<end acknowledged>' from broker_private.endpoints e where e.endpoint_no = any (endpoint_nos) and e.local_end is not null
  on conflict do nothing;
end
$$;
