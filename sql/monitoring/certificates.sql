-- broker.certificates: the public certificates that broker.create_certificate registered, as far as
-- sys.certificates goes. thumbprint is the SHA-256 of the certificate; its dates and names are in
-- the PEM: pybroker certificate show.
create or replace view broker.certificates with (security_barrier) as
select
  c.name,
  c.certificate_id,
  coalesce((c.user_name).broker_user, pg_catalog.pg_get_userbyid((c.user_name).role)) as principal_id,
  c.thumbprint,
  c.certificate_pem,
  c.is_active_for_begin_dialog
from broker_private.certificates c
where exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, (c.user_name).role, 'USAGE');
