-- What is_seen asks where the quick look at the stack says no.
-- Locks: the voucher's row, which it removes: a voucher counts once.
-- Errors: 42501.
-- Why: after an error has left a counterpart, PL/pgSQL evaluates that call as a statement until the
-- transaction ends. It does so after ROLLBACK TO SAVEPOINT or an EXCEPTION block too. The
-- statement's text then stands between the two frames. Such a call counts if the public function
-- vouched for it just before. Whether to wait for that or to refuse is read from deeper lines. Who
-- imitates them gains a NULL.
create or replace function broker_private.has_voucher(stack text, caller name)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  frame constant text := broker_private.frame_of_entry(stack);
begin
  if split_part(stack, e'\n', 2) ~ ('^' || frame) then
    return true;
  end if;
  delete from broker_private.vouchers v where v.backend = pg_backend_pid() and v.caller = has_voucher.caller;
  if found then
    return true;
  end if;
  if stack !~ (E'\\n' || frame) then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('It can''t be seen that "%s" calls this function.', caller),
      hint = 'Call the functions in schema broker, not those in broker_private.';
  end if;
  return false;
end
$$;
