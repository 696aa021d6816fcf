-- The role's name, or null if it was dropped.
--
-- PostgreSQL then says "unknown (OID=...)", which could be the name of another role.
create or replace function broker_private.name_of_role(role regrole)
returns name
language sql stable
begin atomic
  select nullif(pg_catalog.pg_get_userbyid(role), ('unknown (OID=' || role::oid || ')')::name);
end;
