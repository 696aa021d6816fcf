-- The quoted, schema-qualified name of an activation procedure.
--
-- A name without a schema is looked for in the queue's schema. The handler turns an error that can
-- only be raised into a refusal.
-- Errors: 9614 not found, 9620 a function, 9653 it has parameters, 9742 it is temporary.
create or replace function broker_private.activation_target(procedure_name text, default_schema name)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  parts text[];
  proc record;
begin
  begin
    parts := parse_ident(procedure_name);
  exception when invalid_parameter_value then
    parts := null;
  end;
  if parts is null or cardinality(parts) > 2 then
    found := broker_private.refuse(
      9614, format('"%s" is not the name of a procedure.', procedure_name), 'Give procedure, or schema.procedure, quoted as in SQL.'
    );
  elsif cardinality(parts) = 1 then
    parts := array[default_schema::text] || parts;
  end if;
  if parts[1] = 'pg_temp' or starts_with(parts[1], 'pg_temp_') then
    found := broker_private.refuse(
      9742, format('The activation procedure "%s" is temporary.', procedure_name),
      'Create it in a schema that stays: it runs in sessions of its own.'
    );
  end if;
  select p.prokind, p.pronargs, quote_ident(n.nspname) || '.' || quote_ident(p.proname) as qualified_name into proc
  from pg_proc p
  join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = parts[1] and p.proname = parts[2]
  order by p.prokind = 'p' desc, p.pronargs
  limit 1;
  if not found then
    found := broker_private.refuse(
      9614, format('The activation procedure "%s" is not found.', procedure_name),
      format('Create the procedure %I.%I first; it takes no parameters.', parts[1], parts[2])
    );
  elsif proc.prokind <> 'p' then
    found := broker_private.refuse(
      9620, format('The activation procedure %s is a function.', proc.qualified_name), 'Create it with CREATE PROCEDURE.'
    );
  elsif proc.pronargs > 0 then
    found := broker_private.refuse(
      9653, format('The activation procedure %s has parameters.', proc.qualified_name),
      'An activated procedure takes none: it gets its messages by broker.receive.'
    );
  end if;
  return proc.qualified_name;
end
$$;
