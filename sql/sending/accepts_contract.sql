-- broker_private.accepts_contract(service, contract): whether dialogs to the service may be on the
-- contract. The DEFAULT contract must be listed too.
create or replace function broker_private.accepts_contract(service integer, contract integer)
returns boolean
language sql stable
begin atomic
  select exists (
    select from broker_private.service_contracts c where c.service_id = service and c.contract_id = contract
  );
end;
