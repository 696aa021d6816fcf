-- broker_private.error_body(code, description): the body of an Error message, as XML in UTF-8. Control characters, which XML can't have, become question marks.
create or replace function broker_private.error_body(code integer, description text)
returns bytea
language sql immutable
begin atomic
  select pg_catalog.convert_to(
    '<Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>' || code::text || '</Code><Description>'
    || pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(
      pg_catalog.regexp_replace(description, '[\x01-\x08\x0b\x0c\x0e-\x1f]', '?', 'g'), '&', '&amp;'
    ), '<', '&lt;'), '>', '&gt;')
    || '</Description></Error>',
    'UTF8'
  );
end;
