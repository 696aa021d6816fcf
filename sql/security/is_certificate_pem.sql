-- Whether it looks like one certificate in PEM: its markers around the base64 of an ASN.1 sequence.
--
-- A worker reads the rest. The handler turns an error that can only be raised into an answer.
create or replace function broker_private.is_certificate_pem(pem text)
returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  content text := substring(pem from E'^\\s*-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\\s]+)-----END CERTIFICATE-----\\s*$');
begin
  return content is not null and length(decode(content, 'base64')) > 100 and get_byte(decode(content, 'base64'), 0) = 48;
exception
  when invalid_parameter_value then
    return false;
end
$$;
