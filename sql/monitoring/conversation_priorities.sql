-- broker.conversation_priorities: the broker priorities, as sys.conversation_priorities. NULL is
-- ANY.
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
