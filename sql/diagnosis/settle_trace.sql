-- Keeps the triggers of traces there exactly while the database's owner traces.
--
-- Removes what was seen a week ago. Returns whether that is so now: where transactions that write
-- messages are in its way, it is not.
-- Locks: as attach_trace and detach_trace; none, if there is nothing to do.
-- Why: all senders pay for the triggers, so a right to receive from one queue must not bring them.
create or replace function broker_private.settle_trace()
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  is_attached constant boolean := broker_private.is_traced();
begin
  if not is_attached and not exists (select from broker_private.traces)
    and not exists (select from broker_private.trace_events) then
    return true;
  end if;
  delete from broker_private.traces t
  where t.ctid = any (array(
    select x.ctid from broker_private.traces x
    where x.ends_at < broker_private.clock() - interval '7 days'
      or not exists (select from pg_roles r where r.oid = x.role)
    for update skip locked
  ));
  delete from broker_private.trace_events v
  where v.ctid = any (array(
    select x.ctid from broker_private.trace_events x
    where not exists (select from broker_private.traces t where t.role = x.role)
    limit 10000
    for update skip locked
  ));
  if is_attached <> broker_private.is_trace_wanted() then
    if is_attached then
      perform broker_private.detach_trace();
    else
      perform broker_private.attach_trace();
    end if;
  end if;
  return true;
exception
  when lock_not_available then
    return false;
end
$$;
