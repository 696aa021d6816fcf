-- Notes that messages of these dialogs go to another broker.
--
-- From then on they never go anywhere else.
create or replace function broker_private.note_leaving(endpoints bigint[])
returns void
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  insert into broker_private.far_events (endpoint_no, event)
  select u.endpoint_no, '<first taken>' from unnest(endpoints) as u (endpoint_no)
  on conflict do nothing;
end;
