-- Makes the target's side of a dialog when its first message is there: group, handle, endpoint.
--
-- Returns the endpoint's number. The service's owner owns it.
create or replace function broker_private.accept_dialog(
  conversation uuid, service broker_private.services, contract integer, initiator_service text, initiator_broker uuid,
  initial_path "char", initiator_endpoint bigint, expiry timestamp with time zone, encryption boolean
)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return broker_private.new_endpoint(
    gen_random_uuid(), conversation, false, null, service.service_id, broker_private.queue_for(service, contract), contract, initiator_service,
    initiator_broker, initial_path, initiator_endpoint, expiry, encryption, service.owner
  );
end
$$;
