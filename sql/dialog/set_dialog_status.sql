-- Why the endpoint's messages wait in the transmission queue.
create or replace function broker_private.set_dialog_status(endpoint bigint, status_text text)
returns void
language sql
begin atomic
  insert into broker_private.transmission_status as s (endpoint_no, status) values (endpoint, status_text)
  on conflict (endpoint_no) do update set status = excluded.status where s.status <> excluded.status;
end;
