-- Trigger of a trace: why the messages of a dialog wait.
create or replace function broker_private.trace_status()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', c.endpoint_no, 'class', 'Broker:Transmission', 'subclass', 'Waits',
      'status', c.status
    ) order by c.endpoint_no)
    from (
      select x.endpoint_no, x.status
      from changed x
      order by x.endpoint_no
      limit 10000
    ) c
  ));
  return null;
end
$$;
