-- Refuses a name that is missing, empty or longer than 128 characters.
create or replace function broker_private.check_name(kind text, object_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if object_name is null or object_name = '' then
    found := broker_private.refuse(153, format('The name of the %s is missing.', kind), 'Give a name of 1 to 128 characters.');
  elsif length(object_name) > 128 then
    found := broker_private.refuse(
      103,
      format('The name of the %s that starts with "%s" is too long: %s characters.', kind, left(object_name, 64), length(object_name)),
      'Names have at most 128 characters.'
    );
  end if;
end
$$;
