-- broker_private.fail_dialogs(endpoints, codes, descriptions): the far broker refused these dialogs for good: each gets an Error message.
create or replace function broker_private.fail_dialogs(endpoint_nos bigint[], codes integer[], descriptions text[])
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.put_broker_error(f.endpoint_no, f.code, f.description)
  from unnest(endpoint_nos, codes, descriptions) as f (endpoint_no, code, description)
  order by f.endpoint_no;
  -- A side that has ended already hears nothing more: its end counts as acknowledged.
  insert into broker_private.far_events (endpoint_no, event)
  select e.endpoint_no, 'A' from broker_private.endpoints e where e.endpoint_no = any (endpoint_nos) and e.local_end is not null
  on conflict do nothing;
end
$$;
