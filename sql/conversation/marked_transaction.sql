-- broker_private.marked_transaction(mark): the id of the transaction in a conversation's mark, of which the mark holds the low half; 0 for none.
create or replace function broker_private.marked_transaction(mark bigint)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  current_id constant bigint := txid_current();
  distance constant bigint := (current_id - (mark >> 31)) & 4294967295;
begin
  return case
    when mark >> 31 = 0 then 0
    when distance < 2147483648 then current_id - distance
    else current_id + 4294967296 - distance
  end;
end
$$;
