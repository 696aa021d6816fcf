-- broker_private.accept_dialog(...): makes the target's side of a dialog when its first message is
-- there: group, handle, endpoint. Returns the endpoint's number. The service's owner owns it. What
-- the broker answers in place of the service goes into a queue of its own (number 3).
create or replace function broker_private.accept_dialog(
  conversation uuid, service broker_private.services, contract integer, initiator_service text, initiator_broker uuid,
  initial_path "char", initiator_endpoint bigint, expiry timestamp with time zone, encryption boolean
)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  group_number bigint;
  queue constant integer := case
    when contract in (4, 5) and not exists (
      select from broker_private.service_contracts c
      where c.service_id = service.service_id and c.contract_id = accept_dialog.contract
    ) then 3
    else service.queue_id
  end;
begin
  insert into broker_private.groups (conversation_group_id, service_id, queue_id)
  values (gen_random_uuid(), service.service_id, queue)
  returning group_no into group_number;
  return broker_private.new_endpoint(
    gen_random_uuid(), conversation, false, group_number, service.service_id, queue, contract, initiator_service,
    initiator_broker, initial_path, initiator_endpoint, expiry, encryption, service.owner
  );
end
$$;
