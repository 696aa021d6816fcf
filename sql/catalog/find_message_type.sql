-- The message type of that name, or error 8428.
create or replace function broker_private.find_message_type(type_name text)
returns broker_private.message_types
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  found_type broker_private.message_types%rowtype;
begin
  select t.* into found_type from broker_private.message_types t where t.name = type_name;
  if found_type.message_type_id is null then
    found := broker_private.refuse(
      8428, format('The message type "%s" is not found.', coalesce(type_name, 'NULL')),
      'Names are compared byte by byte; broker.service_message_types lists them, broker.create_message_type makes one.'
    );
  end if;
  return found_type;
end
$$;
