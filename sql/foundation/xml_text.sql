-- broker_private.xml_text(text): a text as XML has it between two tags. Control characters, which XML can't have, become question marks.
create or replace function broker_private.xml_text(content text)
returns text
language sql immutable
begin atomic
  select pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(
    pg_catalog.regexp_replace(content, '[\x01-\x08\x0b\x0c\x0e-\x1f]', '?', 'g'), '&', '&amp;'
  ), '<', '&lt;'), '>', '&gt;');
end;
