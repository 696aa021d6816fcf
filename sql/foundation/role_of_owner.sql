-- broker_private.role_of_owner(owner): the principal that an owner is: of pg_database_owner, which owns the system's objects, the role that owns the database.
create or replace function broker_private.role_of_owner(owner_name name)
returns name
language sql stable
begin atomic
  select case
    when owner_name <> 'pg_database_owner' then owner_name
    else (
      select r.rolname
      from pg_catalog.pg_database d
      join pg_catalog.pg_roles r on r.oid = d.datdba
      where d.datname = pg_catalog.current_database()
    )
  end;
end;
