-- DROP REMOTE SERVICE BINDING.
--
-- Dialogs that were secured by it wait for another: they never go clear.
-- Errors: 208 not found, 229.
create or replace function broker.drop_remote_service_binding(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_remote_service_binding(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_remote_service_binding(caller name, binding_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.remote_service_bindings%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_remote_service_binding(binding_name);
  perform broker_private.require_ownership(caller, this.owner, 'remote service binding', this.name);
  delete from broker_private.remote_service_bindings b where b.remote_service_binding_id = this.remote_service_binding_id;
  return true;
end
$$;

comment on function broker.drop_remote_service_binding(text) is
$$DROP REMOTE SERVICE BINDING. Dialogs that were secured by it wait for another: they never go in
the clear.

name: as it was created.

Rights: the owner of the binding, or of the database.
Errors: 208, 229
Example: select broker.create_remote_service_binding('far', '//far/warehouse', 'far worker'), broker.drop_remote_service_binding('far');$$;
