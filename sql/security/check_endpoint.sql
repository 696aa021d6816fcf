-- Refuses options of an endpoint that have no meaning.
create or replace function broker_private.check_endpoint(
  port integer, wanted_state text, ip text, encryption_mode text, forwarding boolean, forward_size integer
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if port is null or port not between 1024 and 65535 then
    found := broker_private.refuse(
      153, format('listener_port %s of the endpoint is out of range.', coalesce(port::text, 'NULL')), 'Use 1024 to 65535; 4022 is customary.'
    );
  elsif wanted_state is null or wanted_state not in ('STARTED', 'STOPPED', 'DISABLED') then
    found := broker_private.refuse(
      153, format('"%s" is not a state of an endpoint.', coalesce(wanted_state, 'NULL')), 'Use STARTED, STOPPED or DISABLED.'
    );
  elsif not broker_private.is_listener_ip(ip) then
    found := broker_private.refuse(
      153, format('"%s" is not a listener_ip.', coalesce(ip, 'NULL')), 'Use ALL, or an IPv4 or IPv6 address of the worker''s machine.'
    );
  elsif encryption_mode is null or encryption_mode not in ('DISABLED', 'SUPPORTED', 'REQUIRED') then
    found := broker_private.refuse(
      153, format('"%s" is not an encryption of an endpoint.', coalesce(encryption_mode, 'NULL')), 'Use REQUIRED, SUPPORTED or DISABLED.'
    );
  elsif forwarding is null then
    found := broker_private.refuse(153, 'message_forwarding is NULL.', 'Use true or false.');
  elsif forward_size is null or forward_size <= 0 then
    found := broker_private.refuse(153, 'message_forward_size is not above 0.', 'Give a number of megabytes.');
  end if;
end
$$;
