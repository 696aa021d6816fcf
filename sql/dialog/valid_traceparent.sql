-- A W3C trace context of version 00, or null where the text is none.
--
-- Others decide what it is, so nothing else is ever stored.
create or replace function broker_private.valid_traceparent(given text)
returns text
language sql immutable
begin atomic
  select case
    when given collate "C" ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
      and pg_catalog.substr(given, 4, 32) <> pg_catalog.repeat('0', 32)
      and pg_catalog.substr(given, 37, 16) <> pg_catalog.repeat('0', 16)
    then given
  end;
end;
