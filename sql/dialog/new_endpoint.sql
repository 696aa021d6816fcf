-- One side of a dialog, with its counters and its destination.
--
-- Returns its number.
create or replace function broker_private.new_endpoint(
  handle uuid, conversation uuid, initiator boolean, group_number bigint, service integer, queue integer, contract integer,
  far_service_name text, far_instance uuid, initial_path "char", far_endpoint bigint, expiry timestamp with time zone,
  encryption boolean, owner_role regrole
)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  number bigint;
begin
  insert into broker_private.endpoints (
    conversation_handle, conversation_id, is_initiator, group_no, service_id, queue_id, contract_id, far_service,
    far_broker_instance, destination_no, path, far_endpoint_no, priority, expires_at, is_encrypted, owner,
    service_name, contract_name, conversation_group_id
  )
  values (
    handle, conversation, initiator, group_number, service, queue, contract, far_service_name,
    far_instance, broker_private.destination_of(far_service_name, far_instance), initial_path, far_endpoint,
    broker_private.priority_of(contract, service, far_service_name), expiry, encryption, owner_role,
    (select coalesce(s.name, s.dropped_name) from broker_private.services s where s.service_id = service),
    (select coalesce(c.name, c.dropped_name) from broker_private.contracts c where c.contract_id = contract),
    (select g.conversation_group_id from broker_private.groups g where g.group_no = group_number)
  )
  returning endpoint_no into number;
  insert into broker_private.sequence_counters (endpoint_no, kind, epoch, next_number, padding)
  values (number, '<next acknowledged>', 0, 0, null), (number, '<next expected>', 0, 0, null), (number, '<next received>', 0, 0, repeat(' ', 120));
  return number;
end
$$;
