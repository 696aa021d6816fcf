-- Whether it is JSON in UTF-8.
--
-- The handler turns the errors of two functions that can only raise into an answer.
create or replace function broker_private.is_valid_json(content bytea)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return content <> '' and convert_from(content, 'UTF8')::json is not null;
exception
  when invalid_text_representation or character_not_in_repertoire or untranslatable_character or statement_too_complex then
    return false;
end
$$;
