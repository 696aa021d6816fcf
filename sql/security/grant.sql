-- GRANT: SEND, RECEIVE, REFERENCES or CONNECT on an object.
--
-- SEND is on SERVICE, RECEIVE on QUEUE, CONNECT on ENDPOINT. REFERENCES is on CONTRACT, MESSAGE
-- TYPE or XML SCHEMA COLLECTION. The role may be public, or a principal that is no database role.
-- By the object's owner.
-- Errors: 153 the permission does not go with the class, 208, 8423, 8425 the object, 229.
create or replace function broker.grant(permission text, securable_class text, securable_name text, role text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.grant(current_user, permission, securable_class, securable_name, role);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.grant(
  caller name, permission_name text, class_name text, securable_name text, grantee_name text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  securable record;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if lower(grantee_name) = 'public' then
    grantee_name := 'public';
  end if;
  securable := broker_private.find_securable(caller, permission_name, class_name, securable_name, grantee_name);
  insert into broker_private.permissions (class, securable_id, permission, grantee)
  values (securable.class, securable.securable_id, permission_name, broker_private.principal_of(grantee_name::name))
  on conflict do nothing;
  return true;
end
$$;

comment on function broker."grant"(text, text, text, text) is
$$GRANT: gives a role, or a user of the broker, a right on an object.

permission: SEND, RECEIVE, REFERENCES or CONNECT.
securable_class: SERVICE for SEND, QUEUE for RECEIVE, CONTRACT, MESSAGE TYPE or XML SCHEMA
  COLLECTION for REFERENCES, ENDPOINT for CONNECT.
securable_name: of the object.
role: a role, public, or a name that is no role.

Rights: the owner of the object, or of the database.
Errors: 153, 208, 229, 8423, 8425, 8428
Example: select broker.grant('SEND', 'SERVICE', '//shop/warehouse', 'clerk');$$;
