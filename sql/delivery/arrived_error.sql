-- The body of an Error that another broker sent, or one that says -9615.
--
-- It must have the one shape that error_body makes, in at most 32,768 bytes. So no program here
-- reads XML of strangers. Not parsed: not every PostgreSQL has libxml. A pattern without back
-- references is matched in linear time. It looks at bytes, written in ASCII, as the database may
-- have another encoding than UTF-8. In its order: ASCII without markup, references, characters of
-- two, three and four bytes; without surrogates, U+FFFE and U+FFFF.
create or replace function broker_private.arrived_error(body bytea)
returns bytea
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if octet_length(body) <= 32768
    and encode(body, 'escape') ~ concat(
      E'^<Error xmlns="http://schemas\\.microsoft\\.com/SQL/ServiceBroker/Error"><Code>',
      '-?(?:[1-9][0-9]{0,8}|1[0-9]{9}|20[0-9]{8}|21[0-3][0-9]{7}|214[0-6][0-9]{6}|2147[0-3][0-9]{5}',
      '|21474[0-7][0-9]{4}|214748[0-2][0-9]{3}|2147483[0-5][0-9]{2}|21474836[0-3][0-9]|214748364[0-7])',
      E'</Code><Description>(?:[\\t\\n\\r -%''-;=?-\\[\\]-\\x7f]|\\\\\\\\|&(?:amp|lt|gt|quot|apos);',
      E'|\\\\3(?:0[2-7]|[1-3][0-7])\\\\2[0-7]{2}',
      E'|\\\\340\\\\2[4-7][0-7]\\\\2[0-7]{2}|\\\\35(?:5\\\\2[0-3][0-7]|6\\\\2[0-7]{2})\\\\2[0-7]{2}',
      E'|\\\\3(?:4[1-7]|5[0-4])\\\\2[0-7]{2}\\\\2[0-7]{2}',
      E'|\\\\357(?:\\\\2(?:[0-6][0-7]|7[0-6])\\\\2[0-7]{2}|\\\\277\\\\2(?:[0-6][0-7]|7[0-5]))',
      E'|\\\\3(?:60\\\\2[2-7][0-7]|6[1-3]\\\\2[0-7]{2}|64\\\\2[01][0-7])\\\\2[0-7]{2}\\\\2[0-7]{2}',
      ')*</Description></Error>$'
    ) collate "C" then
    return body;
  end if;
  return broker_private.error_body(
    -9615, 'The far side ended the conversation with an Error whose content is not that of an Error message.'
  );
end
$$;
