-- broker.service_contract_usages: the contracts that a service accepts as a target, as sys.service_contract_usages.
create or replace view broker.service_contract_usages as
select c.service_id, c.contract_id as service_contract_id
from broker_private.service_contracts c;
