-- DROP ENDPOINT.
--
-- The worker stops listening when it looks next.
-- Errors: 208 not found, 229.
create or replace function broker.drop_endpoint(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_endpoint(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_endpoint(caller name, endpoint_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.tcp_endpoint%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.require_database_ownership(caller, 'endpoint');
  this := broker_private.find_endpoint(endpoint_name);
  delete from broker_private.permissions p where p.class = '<tcp endpoint>' and p.securable_id = this.endpoint_id;
  delete from broker_private.tcp_endpoint;
  return true;
end
$$;

comment on function broker.drop_endpoint(text) is
$$DROP ENDPOINT. The worker stops listening within seconds.

name: as it was created.

Rights: the database's owner.
Errors: 208, 229
Example: select broker.create_endpoint('broker', 4022), broker.drop_endpoint('broker');$$;
