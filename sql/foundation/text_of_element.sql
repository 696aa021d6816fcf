-- The text of the first element of that name that has nothing but text, or null.
--
-- Many servers have no XML parser; that it is XML has been checked.
create or replace function broker_private.text_of_element(content text, element text)
returns text
language sql immutable
begin atomic
  select pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(
    pg_catalog.substring(content, '<' || element || '>([^<]*)</' || element || '>'),
    '&lt;', '<'), '&gt;', '>'), '&quot;', '"'), '&apos;', ''''), '&amp;', '&');
end;
