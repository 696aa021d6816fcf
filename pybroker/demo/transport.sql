-- How this database's worker is reached, whom it lets in, and where the far service is. Run once on each side.

-- Listings 15-20 and 15-21, in their end only: each side has a certificate, and knows the other's public one. The private
-- key of the first stays in the worker's key directory. One certificate serves the worker, which connects with it, and
-- the owner of the service, whose dialogs it secures.
select broker.create_certificate(%(own_name)s, %(own_certificate)s, user_name => current_user);
select broker.create_certificate(%(far_name)s, %(far_certificate)s, user_name => %(far_name)s);

-- The chapter sets the port with sp_configure, as its beta had no syntax for endpoints yet.
select broker.create_endpoint(
  'BrokerEndpoint',
  listener_port => %(own_port)s,
  state => 'STARTED',
  listener_ip => %(own_ip)s,
  certificate => %(own_name)s
);
select broker.grant('CONNECT', 'ENDPOINT', 'BrokerEndpoint', %(far_name)s);

-- Page 549: the route to the far service.
select broker.create_route(%(route_name)s, address => %(far_address)s, service_name => %(far_service)s);
