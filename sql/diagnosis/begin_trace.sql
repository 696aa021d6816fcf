-- Makes the triggers of traces, trying again while transactions that write messages are in its way.
-- Locks: as attach_trace.
-- Errors: 1222 they do not end.
create or replace function broker_private.begin_trace()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  for attempt in 1 .. 10 loop
    begin
      perform broker_private.attach_trace();
      return;
    exception
      when lock_not_available then
        perform pg_sleep(0.05);
    end;
  end loop;
  found := broker_private.refuse(
    1222, 'The trace could not begin: transactions that write messages do not end.',
    'End them, or wait and try again; pg_stat_activity shows the oldest by xact_start.'
  );
end
$$;
