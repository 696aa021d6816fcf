-- A text as XML has it between two tags.
--
-- What XML can't have becomes question marks: control characters, U+FFFE and U+FFFF.
create or replace function broker_private.xml_text(content text)
returns text
language sql immutable
begin atomic
  select pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(
    pg_catalog.regexp_replace(content, E'[\\x01-\\x08\\x0b\\x0c\\x0e-\\x1f\\uFFFE\\uFFFF]', '?', 'g'), '&', '&amp;'
  ), '<', '&lt;'), '>', '&gt;');
end;
