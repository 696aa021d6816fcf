-- Raises error 9663 for the objects that come with the broker.
create or replace function broker_private.refuse_system_object(kind text, object_name text, object_id integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if object_id < 65536 then
    found := broker_private.refuse(
      9663, format('The system %s "%s" cannot be changed.', kind, object_name), format('Create a %s of your own.', kind)
    );
  end if;
end
$$;
