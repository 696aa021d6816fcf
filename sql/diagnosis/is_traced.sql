-- Whether the triggers of traces are there.
create or replace function broker_private.is_traced()
returns boolean
language sql stable
begin atomic
  select exists (
    select from pg_catalog.pg_trigger g
    where g.tgrelid = 'broker_private.messages'::pg_catalog.regclass and g.tgname = 'trace_insert'
  );
end;
