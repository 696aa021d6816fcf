-- DROP CERTIFICATE.
--
-- Connections that it authenticated end when the worker looks next.
-- Errors: 208 not found, 3716 the endpoint uses it; 229.
create or replace function broker.drop_certificate(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_certificate(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_certificate(caller name, certificate_name text)
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
  if exists (select from broker_private.tcp_endpoint t where t.certificate_id = this.certificate_id) then
    found := broker_private.refuse(
      3716, format('The certificate "%s" cannot be dropped: the endpoint uses it.', certificate_name),
      'Give the endpoint another certificate first, or drop it.'
    );
  end if;
  delete from broker_private.certificates c where c.certificate_id = this.certificate_id;
  return true;
end
$$;

comment on function broker.drop_certificate(text) is
$$DROP CERTIFICATE. Connections that it authenticated end within seconds.

name: as it was created.

Rights: the database's owner.
Errors: 208, 229, 3716
Example: select broker.create_certificate('far', :'pem', 'far worker'), broker.drop_certificate('far');$$;
