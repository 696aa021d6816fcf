-- The certificate of that name, or error 208.
create or replace function broker_private.find_certificate(certificate_name text)
returns broker_private.certificates
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  found_certificate broker_private.certificates%rowtype;
begin
  select c.* into found_certificate from broker_private.certificates c where c.name = certificate_name;
  if found_certificate.certificate_id is null then
    found := broker_private.refuse(
      208, format('The certificate "%s" is not found.', coalesce(certificate_name, 'NULL')),
      'Register it: SELECT broker.create_certificate(name, certificate_pem, user_name), or pybroker certificate install.'
    );
  end if;
  return found_certificate;
end
$$;
