-- The body of an Error message, as XML in UTF-8.
--
-- A description has at most 3,000 characters, as END CONVERSATION's: the far side takes no more
-- than 32,768 bytes.
create or replace function broker_private.error_body(code integer, description text)
returns bytea
language sql immutable
begin atomic
  select pg_catalog.convert_to(
    '<Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>' || code::text || '</Code><Description>'
    || broker_private.xml_text(pg_catalog.left(description, 3000)) || '</Description></Error>',
    'UTF8'
  );
end;
