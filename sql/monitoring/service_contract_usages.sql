-- The contracts that a service accepts as a target, as sys.service_contract_usages.
create or replace view broker.service_contract_usages with (security_barrier) as
select c.service_id, c.contract_id as service_contract_id
from broker_private.service_contracts c
where exists (select from broker_private.visible_services v where v.service_id = c.service_id);

comment on view broker.service_contract_usages is
'The contracts that a service accepts as a target, as sys.service_contract_usages.';
comment on column broker.service_contract_usages.service_id is 'the service that may be addressed';
comment on column broker.service_contract_usages.service_contract_id is 'a contract that dialogs to it may have';
