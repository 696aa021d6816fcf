-- Trigger of a trace: conversations that are quarantined, and that leave quarantine.
--
-- They go on (redrive, discard) or are gone.
create or replace function broker_private.trace_quarantine()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.note_events((
    select jsonb_agg(jsonb_build_object(
      'endpoint_no', c.endpoint_no, 'class', 'Broker:Queue',
      'subclass', case tg_op when 'INSERT' then 'Quarantined' else 'Left Quarantine' end,
      'status', c.last_error
    ) order by c.endpoint_no)
    from (
      select x.endpoint_no, x.last_error
      from changed x
      order by x.endpoint_no
      limit 10000
    ) c
  ));
  return null;
end
$$;
