-- Makes the target's side of a dialog within this database and returns its number.
--
-- If the service does not accept the contract (8408), it returns null, and the initiator gets an
-- Error. So it does if the sender, the owner of the initiating service, has no SEND permission on
-- it (8494). is_listed: the service lists the contract. ServiceEcho (4) and ServiceDiagnostic (5)
-- need not be listed: the broker itself answers. It does so on a queue of its own (3), also while
-- the service's is off. The service's owner owns the side.
create or replace function broker_private.open_local_dialog(
  e broker_private.endpoints, target integer, target_queue integer, target_owner regrole, is_listed boolean, sender regrole, broker uuid
)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not is_listed and e.contract_id not in (4, 5) then
    perform broker_private.put_broker_error(
      e.endpoint_no, 8408, format('Target service "%s" does not support contract "%s".', e.far_service, e.contract_name)
    );
    return null;
  elsif not broker_private.is_permitted(
    -- An event notification is sent as who created it.
    broker_private.name_of_role(case when e.service_id < 65536 then e.owner else sender end), 'SEND', '<service>', target, target_owner
  ) then
    perform broker_private.put_broker_error(
      e.endpoint_no, 8494, format('You do not have permission to access the service "%s".', e.far_service)
    );
    return null;
  end if;
  return broker_private.new_endpoint(
    gen_random_uuid(), e.conversation_id, false, null, target, e.far_service, case when is_listed then target_queue else 3 end,
    e.contract_id, e.contract_name, e.service_name, broker, '<local>', e.endpoint_no, e.expires_at, e.is_encrypted, target_owner
  );
end
$$;
