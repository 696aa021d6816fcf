-- sys.certificates: certificates; their subject and dates are in the PEM, and where their private keys are no database knows.
select
  c.name, c.certificate_id, c.principal_id, c.thumbprint, c.is_active_for_begin_dialog,
  null::text as pvt_key_encryption_type, null::text as pvt_key_encryption_type_desc, null::text as issuer_name,
  null::text as subject, null::timestamp as start_date, null::timestamp as expiry_date
from broker.certificates c
