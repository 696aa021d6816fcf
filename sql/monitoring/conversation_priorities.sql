-- The broker priorities, as sys.conversation_priorities.
--
-- NULL is ANY.
create or replace view broker.conversation_priorities with (security_barrier) as
select
  p.priority_id,
  p.name,
  p.contract_id as service_contract_id,
  p.local_service_id,
  p.remote_service_name,
  p.priority_level as priority
from broker_private.priorities p
where exists (select from broker_private.all_seeing);

comment on view broker.conversation_priorities is
'The broker priorities, as sys.conversation_priorities. A criterion that is NULL stands for ANY.';
comment on column broker.conversation_priorities.priority_id is 'the older of two equal ones has the lower';
comment on column broker.conversation_priorities.name is 'as create_broker_priority was told';
comment on column broker.conversation_priorities.service_contract_id is 'holds for dialogs on this contract';
comment on column broker.conversation_priorities.local_service_id is 'holds for dialogs of this service of the database';
comment on column broker.conversation_priorities.remote_service_name is 'holds for dialogs with a service of this name';
comment on column broker.conversation_priorities.priority is '1 to 10: what matching dialogs get when they begin';
