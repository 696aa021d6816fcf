-- ALTER ENDPOINT; what is not given (NULL) stays.
-- Errors: 208 not found, 153 an option, 229.
create or replace function broker.alter_endpoint(
  name text,
  listener_port integer default null,
  state text default null,
  listener_ip text default null,
  certificate text default null,
  encryption text default null,
  message_forwarding boolean default null,
  message_forward_size integer default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_endpoint(
      current_user, name, listener_port, state, listener_ip, certificate, encryption, message_forwarding, message_forward_size
    );
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_endpoint(
  caller name, endpoint_name text, port integer, new_state text, ip text, certificate_name text, encryption_mode text,
  forwarding boolean, forward_size integer
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.tcp_endpoint%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.require_database_ownership(caller, 'endpoint');
  this := broker_private.find_endpoint(endpoint_name);
  this.listener_port := coalesce(port, this.listener_port);
  this.state := coalesce(new_state, this.state);
  this.listener_ip := coalesce(ip, this.listener_ip);
  this.encryption := coalesce(encryption_mode, this.encryption);
  this.is_message_forwarding_enabled := coalesce(forwarding, this.is_message_forwarding_enabled);
  this.message_forwarding_size := coalesce(forward_size, this.message_forwarding_size);
  perform broker_private.check_endpoint(
    this.listener_port, this.state, this.listener_ip, this.encryption, this.is_message_forwarding_enabled,
    this.message_forwarding_size
  );
  if certificate_name is not null then
    this.certificate_id := (broker_private.find_certificate(certificate_name)).certificate_id;
  end if;
  update broker_private.tcp_endpoint t set
    listener_port = this.listener_port,
    state = this.state,
    listener_ip = this.listener_ip,
    certificate_id = this.certificate_id,
    encryption = this.encryption,
    is_message_forwarding_enabled = this.is_message_forwarding_enabled,
    message_forwarding_size = this.message_forwarding_size;
  return true;
end
$$;

comment on function broker.alter_endpoint(text, integer, text, text, text, text, boolean, integer) is
$$ALTER ENDPOINT: changes how the worker whose home database this is listens. It follows within
seconds.

name: of the endpoint.
listener_port, state, listener_ip, certificate, encryption, message_forwarding,
  message_forward_size: as broker.create_endpoint. NULL leaves one as it is.

Rights: the database's owner.
Errors: 153, 208, 229
Example: select broker.create_endpoint('broker', 4022), broker.alter_endpoint('broker', listener_port => 4023);$$;
