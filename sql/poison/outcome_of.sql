-- How a transaction ended: in progress, committed or aborted.
--
-- Null for 0 and for one that nobody remembers. A transaction that this server has not come to yet,
-- as after a restore from another one, is in progress.
create or replace function broker_private.outcome_of(transaction_id bigint)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return case
    when transaction_id >= txid_snapshot_xmax(txid_current_snapshot()) then 'in progress'
    when transaction_id > 0 then txid_status(transaction_id)
  end;
end
$$;
