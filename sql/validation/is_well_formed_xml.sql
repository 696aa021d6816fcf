-- Whether it is a well-formed XML document in UTF-8 without a DTD.
--
-- Null where the server was built without libxml and it may be one. A DTD is looked for in front of
-- the first element, where alone one can be. The handler turns the errors of two functions that can
-- only raise into an answer; nothing has been written when they do.
create or replace function broker_private.is_well_formed_xml(content bytea)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return content <> ''
    and (position('<!DOCTYPE'::bytea in content) = 0 or convert_from(content, 'UTF8') !~ E'^\\ufeff?(\\s|<\\?([^?]|\\?+[^?>])*\\?+>|<!--([^-]|-[^-])*-->)*<!DOCTYPE')
    and xml_is_well_formed_document(convert_from(content, 'UTF8'));
exception
  when feature_not_supported then
    return null;
  when character_not_in_repertoire or untranslatable_character then
    return false;
end
$$;
