-- The certificates that broker.create_certificate registered, as sys.certificates.
--
-- They are the public ones, as far as that view goes. thumbprint is the SHA-256 of the certificate;
-- its dates and names are in the PEM: pybroker certificate show.
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

comment on view broker.certificates is
'The public certificates of this and other workers, as far as sys.certificates goes. Their dates and subjects are in the PEM: pybroker certificate show.';
comment on column broker.certificates.name is 'as create_certificate was told';
comment on column broker.certificates.certificate_id is 'what peer_certificate_id and certificate_id elsewhere refer to';
comment on column broker.certificates.principal_id is 'the user whom the certificate stands for: a role, or a broker user';
comment on column broker.certificates.thumbprint is 'SHA-256 of the certificate';
comment on column broker.certificates.certificate_pem is 'the certificate as text, without a private key';
comment on column broker.certificates.is_active_for_begin_dialog is 'whether new dialogs may be secured by it';
