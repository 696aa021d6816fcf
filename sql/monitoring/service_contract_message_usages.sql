-- broker.service_contract_message_usages: which side sends which type on which contract, as
-- sys.service_contract_message_usages.
create or replace view broker.service_contract_message_usages with (security_barrier) as
select m.contract_id as service_contract_id, m.message_type_id, m.is_sent_by_initiator, m.is_sent_by_target
from broker_private.contract_messages m
join broker_private.contracts c on c.contract_id = m.contract_id and c.name is not null
where exists (select from broker_private.visible_contracts v where v.contract_id = m.contract_id);
