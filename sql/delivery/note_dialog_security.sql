-- How dialogs that go over the network for the first time are secured.
--
-- Called in the transaction of take. It stays: of a dialog that has its security already nothing
-- changes.
create or replace function broker_private.note_dialog_security(endpoint_nos bigint[], kinds text[], session_keys bytea[] default null)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into broker_private.dialog_security (endpoint_no, kind, session_key)
  select d.endpoint_no, d.kind::"char", d.session_key
  from unnest(endpoint_nos, kinds, session_keys) as d (endpoint_no, kind, session_key)
  order by d.endpoint_no
  on conflict do nothing;
end
$$;
