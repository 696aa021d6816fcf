-- Who calls is proven by the stack alone, or by a voucher.

-- A public function's word for its caller, for one call; written and removed by one transaction.
create unlogged table broker_private.vouchers (
  backend integer not null,
  caller name not null
);

drop function if exists broker_private.assert_entry(name);
