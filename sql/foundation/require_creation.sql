-- Who may create broker objects, and for whom; returns the owner to record.
--
-- CREATE on the database stands for membership in db_ddladmin; an owner other than oneself must be
-- a role one is a member of.
create or replace function broker_private.require_creation(role_name name, kind text, owner_name text)
returns regrole
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  owner_role regrole;
begin
  if not has_database_privilege(role_name, current_database(), 'CREATE') then
    found := broker_private.refuse(
      229, format('Role "%s" may not create a %s.', role_name, kind),
      format('Let the owner of the database run: GRANT CREATE ON DATABASE %I TO %I', current_database(), role_name)
    );
  end if;
  if owner_name is null then
    return broker_private.find_role(role_name);
  end if;
  perform broker_private.check_role_name('owner', owner_name);
  owner_role := broker_private.find_role(owner_name::name);
  if not broker_private.is_owner(role_name, owner_role) then
    found := broker_private.refuse(
      229, format('Role "%s" may not make "%s" the owner of a %s.', role_name, owner_name, kind),
      'Name yourself, or a role that you are a member of.'
    );
  end if;
  return owner_role;
end
$$;
