-- An activation procedure by its qualified name; null if there is none now.
--
-- From the catalog: a cast to regprocedure fails where whoever asks may not use the schema.
create or replace function broker_private.procedure_of(qualified_name text)
returns oid
language sql stable
begin atomic
  select p.oid
  from pg_catalog.pg_proc p
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname = (pg_catalog.parse_ident(qualified_name))[1]
    and p.proname = (pg_catalog.parse_ident(qualified_name))[2]
    and p.prokind = 'p' and p.pronargs = 0;
end;
