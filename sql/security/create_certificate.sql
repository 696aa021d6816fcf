-- CREATE CERTIFICATE: the public certificate of this or another worker.
--
-- The user that owns it may be a principal that is no database role. One that is not active secures
-- no new dialog. Private keys live in the worker's key directory, never here.
-- Errors: 153 not one PEM certificate, more than 32 KiB, a private key, or a short RSA key, 2714
-- exists, 15232 this certificate is registered already, 103, 229.
create or replace function broker.create_certificate(
  name text, certificate_pem text, user_name text, active_for_begin_dialog boolean default true
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_certificate(current_user, name, certificate_pem, user_name, active_for_begin_dialog);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_certificate(
  caller name, certificate_name text, pem text, owner_name text, is_active boolean
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  most constant integer := 32 * 1024;
  known record;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('certificate', certificate_name);
  perform broker_private.require_database_ownership(caller, 'certificate');
  perform broker_private.check_active(certificate_name, is_active);
  if strpos(pem, 'PRIVATE KEY') > 0 then
    found := broker_private.refuse(
      153, format('What is given for the certificate "%s" holds a private key.', certificate_name),
      'Give the certificate alone; the private key stays in the worker''s key directory. Replace the key: it has been sent to this server.'
    );
  elsif octet_length(pem) > most then
    found := broker_private.refuse(
      153, format('The certificate "%s" has %s bytes of PEM; %s are allowed.', certificate_name, octet_length(pem), most),
      'One that pybroker certificate create made has less than 2 kB. Leave out what others put into it.'
    );
  elsif not broker_private.is_certificate_pem(pem) then
    found := broker_private.refuse(
      153, format('What is given for the certificate "%s" is not one certificate in PEM.', certificate_name),
      'Give the text of one file that pybroker certificate create made: it begins with -----BEGIN CERTIFICATE-----.'
    );
  elsif broker_private.has_short_rsa_key(pem) then
    found := broker_private.refuse(
      153, format('The certificate "%s" has an RSA key of less than 2048 bits.', certificate_name),
      'Such a key can be broken. Have another one made: pybroker certificate create.'
    );
  end if;
  perform broker_private.check_role_name('user of the certificate', owner_name);
  insert into broker_private.certificates (name, user_name, certificate_pem, is_active_for_begin_dialog)
  values (certificate_name, broker_private.principal_of(owner_name::name), pem, is_active)
  on conflict do nothing;
  if not found then
    select c.name, broker_private.principal_name(c.user_name) as user_name into known
    from broker_private.certificates c
    where c.name <> certificate_name
      and c.thumbprint = sha256(decode(regexp_replace(pem, E'-----[^-]+-----|\\s', '', 'g'), 'base64'));
    if known.name is not null then
      found := broker_private.refuse(
        15232, format('This certificate is registered already, as "%s" of the user "%s".', known.name, known.user_name),
        'One certificate stands for one user. Drop that one first, or make another certificate for another user.'
      );
    end if;
    found := broker_private.refuse_duplicate('certificate', certificate_name);
  end if;
  return true;
end
$$;

comment on function broker.create_certificate(text, text, text, boolean) is
$$CREATE CERTIFICATE: registers the public certificate of this or of another worker. Private keys
live in the worker's key directory, never here.

name: of the certificate.
certificate_pem: one certificate in PEM, of up to 32 KiB, without a private key.
user_name: whom it stands for: a role, or a name that is no role.
active_for_begin_dialog: false keeps it from securing new dialogs.

Rights: the database's owner.
Errors: 103, 153, 229, 2714, 15232
Example: select broker.create_certificate('far', :'pem', 'far worker');$$;
