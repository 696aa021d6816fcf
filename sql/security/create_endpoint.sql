-- CREATE ENDPOINT FOR SERVICE_BROKER: where the worker whose home database this is listens.
--
-- There is one. The certificate is one of broker.create_certificate whose private key the worker
-- has. With message_forwarding the worker passes on what its routes of scope WORKER lead to other
-- workers. It holds up to message_forward_size megabytes of it in memory.
-- Errors: 2714 there is one, 208 certificate, 153 an option, 103, 229.
create or replace function broker.create_endpoint(
  name text,
  listener_port integer,
  state text default 'STOPPED',
  listener_ip text default 'ALL',
  certificate text default null,
  encryption text default 'REQUIRED',
  message_forwarding boolean default false,
  message_forward_size integer default 10
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_endpoint(
      current_user, name, listener_port, state, listener_ip, certificate, encryption, message_forwarding, message_forward_size
    );
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_endpoint(
  caller name, endpoint_name text, port integer, initial_state text, ip text, certificate_name text, encryption_mode text,
  forwarding boolean, forward_size integer
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('endpoint', endpoint_name);
  perform broker_private.require_database_ownership(caller, 'endpoint');
  perform broker_private.check_endpoint(port, initial_state, ip, encryption_mode, forwarding, forward_size);
  insert into broker_private.tcp_endpoint (
    name, owner, state, listener_port, listener_ip, certificate_id, encryption, is_message_forwarding_enabled,
    message_forwarding_size
  )
  values (
    endpoint_name, broker_private.find_role(caller), initial_state, port, ip,
    case when certificate_name is not null then (broker_private.find_certificate(certificate_name)).certificate_id end,
    encryption_mode, forwarding, forward_size
  )
  on conflict do nothing;
  if not found then
    found := broker_private.refuse(
      2714, format('The endpoint "%s" cannot be created: there is one already.', endpoint_name), 'Alter it or drop it: a worker has one endpoint.'
    );
  end if;
  return true;
end
$$;

comment on function broker.create_endpoint(text, integer, text, text, text, text, boolean, integer) is
$$CREATE ENDPOINT ... FOR SERVICE_BROKER: where the worker whose home database this is listens. A
database has one.

name: of the endpoint.
listener_port: the TCP port, 1 to 65535.
state: STARTED, STOPPED or DISABLED.
listener_ip: ALL, or the address of one interface.
certificate: one of broker.create_certificate whose private key the worker has.
encryption: REQUIRED, SUPPORTED or DISABLED.
message_forwarding: whether the worker passes on what its routes of scope WORKER lead to other
  workers.
message_forward_size: megabytes of such messages that it holds at most.

Rights: the database's owner.
Errors: 103, 153, 208, 229, 2714
Example: select broker.create_endpoint('broker', 4022);$$;
