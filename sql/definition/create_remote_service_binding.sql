-- CREATE REMOTE SERVICE BINDING: secures dialogs to a far service by a user's certificate.
--
-- The service is one of another worker. anonymous: without saying there who begins them. The user
-- may be a principal that is no database role. CREATE on the database always, also to name oneself:
-- a binding decides for everybody's dialogs to that service.
-- Errors: 2714 exists, 9619 the service has one, 28083 a group, 28089 a role of PostgreSQL's own,
-- 103, 153, 229.
create or replace function broker.create_remote_service_binding(
  name text, to_service text, user_name text, anonymous boolean default false, owner text default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_remote_service_binding(current_user, name, to_service, user_name, anonymous, owner);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_remote_service_binding(
  caller name, binding_name text, far_service text, binding_user text, anonymous boolean, binding_owner text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  owner_role regrole;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('remote service binding', binding_name);
  owner_role := broker_private.require_creation(caller, 'remote service binding', binding_owner);
  perform broker_private.check_name('service of the remote service binding', far_service);
  perform broker_private.check_binding_user(caller, binding_name, binding_user);
  if anonymous is null then
    found := broker_private.refuse(153, format('The option anonymous of the remote service binding "%s" is NULL.', binding_name), 'Use true or false.');
  end if;
  insert into broker_private.remote_service_bindings (name, owner, remote_service_name, user_name, is_anonymous)
  values (binding_name, owner_role, far_service, broker_private.principal_of(binding_user::name), anonymous)
  on conflict do nothing;
  if not found and exists (select from broker_private.remote_service_bindings b where b.name = binding_name) then
    found := broker_private.refuse_duplicate('remote service binding', binding_name);
  elsif not found then
    found := broker_private.refuse(
      9619, format('There is already a remote service binding for the service "%s".', far_service),
      'Alter that one, or drop it: broker.remote_service_bindings lists them.'
    );
  end if;
  return true;
end
$$;

comment on function broker.create_remote_service_binding(text, text, text, boolean, text) is
$$CREATE REMOTE SERVICE BINDING: dialogs from this database to a far service are secured by a user's
certificate.

name: of the binding.
to_service: the far service; each has one binding.
user_name: whose certificate it is: a role, or a name that is no role.
anonymous: true doesn't say there who begins the dialog.
owner: a role; NULL is the caller.

Rights: CREATE on the database; to name another owner, membership in that role.
Errors: 103, 153, 229, 2714, 9619, 28083, 28089
Example: select broker.create_remote_service_binding('far', '//far/warehouse', 'far worker');$$;
