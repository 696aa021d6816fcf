-- Whether the counterpart whose PG_CONTEXT this is may believe who its caller is.
--
-- Where it says no, the counterpart returns at once, having done nothing: NULL, or what it returns
-- for nothing else. The public function then vouches for the caller and calls once more (see
-- vouch). Whoever calls a counterpart himself is refused.
-- Errors: 42501.
create or replace function broker_private.is_seen(stack text, caller name)
returns boolean
language sql volatile
begin atomic
  select broker_private.is_entry(stack) or broker_private.has_voucher(stack, caller);
end;
