-- broker_private.validation_code(type, validation, schema collection): the one-letter code of a validation's name, or a refusal.
create or replace function broker_private.validation_code(type_name text, type_validation text, type_schema_collection text)
returns "char"
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  code "char" := case type_validation when 'NONE' then 'N' when 'EMPTY' then 'E' when 'WELL_FORMED_XML' then 'X' when 'VALID_JSON' then 'J' end;
begin
  if code is null then
    perform broker_private.refuse(
      153, format('"%s" is not a validation for message type "%s".', coalesce(type_validation, 'NULL'), type_name),
      'Use NONE, EMPTY, WELL_FORMED_XML or VALID_JSON, in capitals.'
    );
  end if;
  if type_schema_collection is not null then
    perform broker_private.refuse(
      153, format('Message type "%s" with validation %s takes no schema collection.', type_name, type_validation),
      'Leave schema_collection out.'
    );
  end if;
  return code;
end
$$;
