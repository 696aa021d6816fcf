-- A public function says who calls it, for its next call of a counterpart.
-- Errors: 42501.
-- Why: a counterpart that an error has left can't see its caller for the rest of the transaction
-- (see has_voucher). No error leaves this function, so it always can. Nobody else's code runs
-- between this call and the next, and a savepoint that takes one back takes back both. Returns
-- false: the call is still to be made.
create or replace function broker_private.vouch(caller name)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_entry(stack) and split_part(stack, e'\n', 2) !~ ('^' || broker_private.frame_of_entry(stack)) then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('It can''t be seen that "%s" calls this function.', caller),
      hint = 'Call the functions in schema broker. Where one of them was cancelled in this transaction, roll back and begin anew.';
  end if;
  insert into broker_private.vouchers (backend, caller) values (pg_backend_pid(), caller);
  return false;
end
$$;
