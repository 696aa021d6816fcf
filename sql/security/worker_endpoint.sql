-- The TCP endpoint of this home database, with its own certificate; no row if it has none.
create or replace function broker_private.worker_endpoint()
returns table (
  name text, state text, listener_ip text, listener_port integer, certificate_name text, certificate_pem text, encryption text,
  is_message_forwarding_enabled boolean, message_forwarding_size integer
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select t.name, t.state, t.listener_ip, t.listener_port, c.name, c.certificate_pem, t.encryption,
    t.is_message_forwarding_enabled, t.message_forwarding_size
  from broker_private.tcp_endpoint t
  left join broker_private.certificates c on c.certificate_id = t.certificate_id;
end
$$;
