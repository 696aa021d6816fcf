-- Whether the key of a certificate in PEM is RSA of less than 2048 bits.
--
-- One of 2048 bits has a modulus of 257 bytes, with the zero before it. Its place is fixed from the
-- key's algorithm on. An early word to whoever registers it: what a worker trusts it reads for
-- itself.
create or replace function broker_private.has_short_rsa_key(pem text)
returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  content constant bytea := decode(regexp_replace(pem, E'-----[^-]+-----|\\s', '', 'g'), 'base64');
  algorithm constant integer := position(E'\\x300d06092a864886f70d010101050003'::bytea in content);
  key constant bytea := substring(content from algorithm + 16 for 12);
begin
  return algorithm > 0 and (
    length(key) < 12 or get_byte(key, 0) <> 130 or get_byte(key, 9) <> 130
    or get_byte(key, 10) * 256 + get_byte(key, 11) < 257
  );
end
$$;
