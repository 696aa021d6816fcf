-- The name of the role that an owner is.
--
-- Of pg_database_owner, which owns the system's objects, it is the role that owns the database.
-- Null: it was dropped.
create or replace function broker_private.role_of_owner(owner_role regrole)
returns name
language sql stable
begin atomic
  select broker_private.name_of_role(
    case
      when owner_role <> pg_catalog.to_regrole('pg_database_owner') then owner_role
      else (
        select d.datdba::regrole from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()
      )
    end
  );
end;
