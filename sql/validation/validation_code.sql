-- The one-letter code of a validation's name, or a refusal.
create or replace function broker_private.validation_code(type_name text, type_validation text)
returns "char"
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  code "char" := case
    when type_validation = 'NONE' then '<no validation>'
    when type_validation = 'EMPTY' then '<empty>'
    when type_validation in ('WELL_FORMED_XML', 'VALID_XML') then '<xml>'
    when type_validation = 'VALID_JSON' then '<json>'
  end;
begin
  if code is null then
    found := broker_private.refuse(
      153, format('"%s" is not a validation for message type "%s".', coalesce(type_validation, 'NULL'), type_name),
      'Use NONE, EMPTY, WELL_FORMED_XML, VALID_XML or VALID_JSON, in capitals.'
    );
  end if;
  return code;
end
$$;
