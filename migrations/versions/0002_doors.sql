-- Who calls is proven by the stack alone, or by a voucher.

-- A public function's word for its caller, for one call; written and removed by one transaction.
create unlogged table broker_private.vouchers (
  backend integer not null,
  caller name not null
);

drop function if exists broker_private.assert_entry(name);

-- Dialogs from other brokers whose lifetime is longer than begin_dialog's longest, 68 years, or ended as long ago. At
-- the end of time the view conversation_endpoints could not be read any more (22008).
update broker_private.endpoints e
set
  expires_at = greatest(least(e.expires_at, '2100-01-01 00:00+00'), '1900-01-01 00:00+00'),
  closed_at = least(e.closed_at, '2100-01-01 00:00+00')
where e.expires_at not between '1900-01-01 00:00+00' and '2100-01-01 00:00+00' or e.closed_at > '2100-01-01 00:00+00';
