-- Whether the role may call the procedure; null if it is gone.
create or replace function broker_private.may_run(runner regrole, procedure oid)
returns boolean
language sql stable
begin atomic
  select pg_catalog.has_schema_privilege(runner, p.pronamespace, 'USAGE')
    and pg_catalog.has_function_privilege(runner, p.oid, 'EXECUTE')
  from pg_catalog.pg_proc p
  where p.oid = procedure;
end;
