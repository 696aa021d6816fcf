-- Whether dialogs to the service may be on the contract.
--
-- The DEFAULT contract must be listed too; of ServiceEcho (4) and ServiceDiagnostic (5) it need not
-- be, as the broker itself answers where the service doesn't (accept_dialog).
create or replace function broker_private.accepts_contract(service integer, contract integer)
returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if contract in (4, 5) then
    return true;
  end if;
  return exists (
    select from broker_private.service_contracts c where c.service_id = service and c.contract_id = contract
  );
end
$$;
