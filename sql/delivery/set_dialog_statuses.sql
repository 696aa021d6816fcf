-- Why the messages of these dialogs are not taken by the far broker for now.
create or replace function broker_private.set_dialog_statuses(endpoint_nos bigint[], status_texts text[])
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.set_dialog_status(s.endpoint_no, s.status)
  from unnest(endpoint_nos, status_texts) as s (endpoint_no, status)
  order by s.endpoint_no;
end
$$;
