-- Refuses a schema that can't have the view of a queue which the role makes or moves.
-- Errors: 153 a system schema, 208 not found, 229 no right to create there.
create or replace function broker_private.check_view_schema(role_name name, schema_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from pg_namespace n where n.nspname = schema_name) then
    found := broker_private.refuse(208, format('The schema "%s" is not found.', schema_name), 'Create it, or give another schema.');
  elsif schema_name like E'pg\\_%' then
    found := broker_private.refuse(
      153, format('The schema "%s" can''t have the view of a queue.', schema_name), 'Give a schema of your own.'
    );
  elsif not has_schema_privilege(role_name, schema_name, 'CREATE') then
    found := broker_private.refuse(
      229, format('Role "%s" may not create the queue''s view in the schema "%s".', role_name, schema_name),
      format('Let the schema''s owner run: GRANT CREATE ON SCHEMA %I TO %I', schema_name, role_name)
    );
  end if;
end
$$;
