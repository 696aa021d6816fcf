-- broker_private.check_view_name(schema, name): refuses a queue's view where there is a relation of that name. Called with the caller's rights.
-- Errors: 2714.
create or replace function broker_private.check_view_name(schema_name text, queue_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if to_regclass(format('%I.%I', schema_name, queue_name)) is not null then
    perform broker_private.refuse(
      2714, format('There is already a relation named %I.%I.', schema_name, queue_name),
      'Choose another name for the queue, or another schema for its view.'
    );
  end if;
end
$$;
