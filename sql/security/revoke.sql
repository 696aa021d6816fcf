-- REVOKE: takes what broker.grant gave.
--
-- What was not granted stays as it is.
-- Errors: as broker.grant.
create or replace function broker.revoke(permission text, securable_class text, securable_name text, role text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.revoke(current_user, permission, securable_class, securable_name, role);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.revoke(
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
  delete from broker_private.permissions p
  where p.class = securable.class and p.securable_id = securable.securable_id and p.permission = permission_name
    and (
      p.grantee = broker_private.principal_of(grantee_name::name)
      or (p.grantee).broker_user = grantee_name
    );
  return true;
end
$$;

comment on function broker.revoke(text, text, text, text) is
$$REVOKE: takes what broker.grant gave. What was not granted stays as it is.

permission, securable_class, securable_name, role: as broker.grant.

Rights: the owner of the object, or of the database.
Errors: 153, 208, 229, 8423, 8425, 8428
Example: select broker.revoke('SEND', 'SERVICE', '//shop/warehouse', 'clerk');$$;
