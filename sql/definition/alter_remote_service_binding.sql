-- ALTER REMOTE SERVICE BINDING; what is not given (NULL) stays.
--
-- Dialogs that have gone over the network keep the kind of security that they were given. If
-- anonymous was changed for one, it waits until that is changed back.
-- Errors: 208 not found, and those of create_remote_service_binding.
create or replace function broker.alter_remote_service_binding(name text, user_name text default null, anonymous boolean default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_remote_service_binding(current_user, name, user_name, anonymous);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_remote_service_binding(
  caller name, binding_name text, binding_user text, anonymous boolean
)
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
  if binding_user is not null then
    perform broker_private.check_binding_user(caller, binding_name, binding_user);
  end if;
  update broker_private.remote_service_bindings b
  set user_name = case when binding_user is null then b.user_name else broker_private.principal_of(binding_user::name) end, is_anonymous = coalesce(anonymous, b.is_anonymous)
  where b.remote_service_binding_id = this.remote_service_binding_id;
  return true;
end
$$;

comment on function broker.alter_remote_service_binding(text, text, boolean) is
$$ALTER REMOTE SERVICE BINDING: changes whose certificate secures the dialogs to a far service.
Dialogs that have gone over the network keep the kind of security that they have.

name: of the binding.
user_name, anonymous: as broker.create_remote_service_binding. NULL leaves one as it is.

Rights: the owner of the binding, or of the database.
Errors: 153, 208, 229, 28083, 28089
Example: select broker.create_remote_service_binding('far', '//far/warehouse', 'far worker'), broker.alter_remote_service_binding('far', anonymous => true);$$;
