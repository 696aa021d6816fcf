-- Raises Service Broker's error of that number.
--
-- The SQLSTATE is S and the number for four digits, T and the last four for the numbers above
-- 28000. It is called as found := broker_private.refuse(...): PERFORM would quote the whole call in
-- the error's CONTEXT, an assignment has one short line there. It never returns, so found stays.
create or replace function broker_private.refuse(error_number integer, error_message text, error_hint text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = case when error_number > 9999 then 'T' else 'S' end || lpad(right(error_number::text, 4), 4, '0'),
    message = error_message,
    hint = error_hint;
end
$$;
