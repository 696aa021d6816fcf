-- ALTER CERTIFICATE: whether the certificate is for new dialogs.
--
-- Those that it secures already go on with it.
-- Errors: 153 NULL, 208 not found, 229.
create or replace function broker.alter_certificate(name text, active_for_begin_dialog boolean)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_certificate(current_user, name, active_for_begin_dialog);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_certificate(caller name, certificate_name text, is_active boolean)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.certificates%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.require_database_ownership(caller, 'certificate');
  this := broker_private.find_certificate(certificate_name);
  perform broker_private.check_active(certificate_name, is_active);
  update broker_private.certificates c set is_active_for_begin_dialog = is_active
  where c.certificate_id = this.certificate_id;
  return true;
end
$$;

comment on function broker.alter_certificate(text, boolean) is
$$ALTER CERTIFICATE ... WITH ACTIVE FOR BEGIN_DIALOG: whether new dialogs may be secured by a
certificate. Those that it secures go on.

name: of the certificate.
active_for_begin_dialog: false keeps it for the dialogs that have it.

Rights: the database's owner.
Errors: 153, 208, 229
Example: select broker.create_certificate('far', :'pem', 'far worker'), broker.alter_certificate('far', false);$$;
