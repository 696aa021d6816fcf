-- Every certificate of this database, and what it is good for.
--
-- Whether its user may connect to the endpoint, and whether it is for new dialogs. Who proves to
-- have the key of the endpoint's own is the worker itself, to which a route may lead.
create or replace function broker_private.worker_certificates()
returns table (name text, user_name name, certificate_pem text, may_connect boolean, is_active_for_begin_dialog boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select
    c.name, broker_private.principal_name(c.user_name), c.certificate_pem,
    exists (select from broker_private.tcp_endpoint t where t.certificate_id = c.certificate_id) or exists (
      select from broker_private.permissions p
      where p.class = '<tcp endpoint>' and p.permission = 'CONNECT' and ((p.grantee).role = 0 or p.grantee = c.user_name)
    ),
    c.is_active_for_begin_dialog
  from broker_private.certificates c
  where broker_private.principal_name(c.user_name) is not null;
end
$$;
