-- sys.certificates: certificates; their subject and dates are in the PEM.
select
  c.name, c.certificate_id, c.principal_id, c.thumbprint, c.is_active_for_begin_dialog,
  null::text as subject, null::timestamptz as start_date, null::timestamptz as expiry_date
from broker.certificates c
