-- broker_private.error_body(code, description): the body of an Error message, as XML in UTF-8.
create or replace function broker_private.error_body(code integer, description text)
returns bytea
language sql immutable
begin atomic
  select pg_catalog.convert_to(
    '<Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>' || code::text || '</Code><Description>'
    || broker_private.xml_text(description) || '</Description></Error>',
    'UTF8'
  );
end;
