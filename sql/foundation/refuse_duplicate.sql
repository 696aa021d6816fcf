-- Raises error 2714: there is one of that name.
create or replace function broker_private.refuse_duplicate(kind text, object_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  found := broker_private.refuse(
    2714, format('There is already a %s named "%s".', kind, object_name),
    'Choose another name, or alter or drop the existing one. Names are compared byte by byte.'
  );
end
$$;
