-- Makes the target's side of a dialog within this database and returns its number.
--
-- If the service does not accept the contract (8408), it returns null, and the initiator gets an
-- Error. So it does if the owner of the initiating service has no SEND permission on it (8494). An
-- event notification is sent as who created it.
create or replace function broker_private.open_local_dialog(e broker_private.endpoints, target broker_private.services)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  initiator broker_private.services%rowtype;
begin
  select s.* into initiator from broker_private.services s where s.service_id = e.service_id;
  if not broker_private.accepts_contract(target.service_id, e.contract_id) then
    perform broker_private.put_broker_error(
      e.endpoint_no, 8408,
      format('Target service "%s" does not support contract "%s".', target.name,
        (select c.name from broker_private.contracts c where c.contract_id = e.contract_id))
    );
    return null;
  elsif not broker_private.is_permitted(
    broker_private.name_of_role(case when initiator.service_id < 65536 then e.owner else initiator.owner end), 'SEND', '<service>', target.service_id, target.owner
  ) then
    perform broker_private.put_broker_error(
      e.endpoint_no, 8494, format('You do not have permission to access the service "%s".', target.name)
    );
    return null;
  end if;
  return broker_private.accept_dialog(
    e.conversation_id, target, e.contract_id, coalesce(initiator.name, initiator.dropped_name),
    (select b.service_broker_guid from broker_private.broker_instance b where b.is_the_only_row), '<local>', e.endpoint_no, e.expires_at, e.is_encrypted
  );
end
$$;
