-- Removes trace contexts that nobody has asked for in a day, and the oldest of more than 100,000.
--
-- Those of messages that were received are gone already (get_traceparent), and those of
-- acknowledged ones (forget_traceparents).
-- Plan: traceparents_age.
create or replace function broker_private.sweep_traceparents()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  horizon constant timestamp with time zone := greatest(
    broker_private.clock() - interval '1 day',
    (select t.noted_at from broker_private.traceparents t order by t.noted_at desc offset 100000 limit 1)
  );
begin
  delete from broker_private.traceparents t
  where t.ctid = any (array(
    select x.ctid from broker_private.traceparents x
    where x.noted_at < horizon
    order by x.noted_at
    limit 100000
    for update skip locked
  ));
end
$$;
