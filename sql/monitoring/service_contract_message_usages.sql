-- Which side sends which type on which contract, as sys.service_contract_message_usages.
create or replace view broker.service_contract_message_usages with (security_barrier) as
select m.contract_id as service_contract_id, m.message_type_id, m.is_sent_by_initiator, m.is_sent_by_target
from broker_private.contract_messages m
join broker_private.contracts c on c.contract_id = m.contract_id and c.name is not null
where exists (select from broker_private.visible_contracts v where v.contract_id = m.contract_id);

comment on view broker.service_contract_message_usages is
'Which side sends which type on which contract, as sys.service_contract_message_usages.';
comment on column broker.service_contract_message_usages.service_contract_id is 'the contract that allows it';
comment on column broker.service_contract_message_usages.message_type_id is 'the type that may be sent';
comment on column broker.service_contract_message_usages.is_sent_by_initiator is 'whether who begins the dialog may send it';
comment on column broker.service_contract_message_usages.is_sent_by_target is 'whether the service that was addressed may send it';
