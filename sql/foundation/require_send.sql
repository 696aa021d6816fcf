-- Refuses a role without SEND on the service.
create or replace function broker_private.require_send(role_name name, service integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.services%rowtype;
begin
  select s.* into this from broker_private.services s where s.service_id = service;
  if not broker_private.is_permitted(role_name, 'SEND', '<service>', service, this.owner) then
    found := broker_private.refuse(
      229, format('Role "%s" has no SEND permission on the service "%s".', role_name, coalesce(this.name, this.dropped_name)),
      format('Let its owner, "%s", run: SELECT broker.grant(''SEND'', ''SERVICE'', %L, %L)', pg_get_userbyid(this.owner), this.name, role_name)
    );
  end if;
end
$$;
