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
  initiator record;
begin
  select
    coalesce(s.name, s.dropped_name) as name, case when s.service_id < 65536 then e.owner else s.owner end as sender,
    b.service_broker_guid as broker
  into initiator
  from broker_private.services s
  join broker_private.broker_instance b on b.is_the_only_row
  where s.service_id = e.service_id;
  if not broker_private.accepts_contract(target.service_id, e.contract_id) then
    perform broker_private.put_broker_error(
      e.endpoint_no, 8408,
      format('Target service "%s" does not support contract "%s".', target.name,
        (select c.name from broker_private.contracts c where c.contract_id = e.contract_id))
    );
    return null;
  elsif not broker_private.is_permitted(
    broker_private.name_of_role(initiator.sender), 'SEND', '<service>', target.service_id, target.owner
  ) then
    perform broker_private.put_broker_error(
      e.endpoint_no, 8494, format('You do not have permission to access the service "%s".', target.name)
    );
    return null;
  end if;
  return broker_private.accept_dialog(
    e.conversation_id, target, e.contract_id, initiator.name, initiator.broker, '<local>', e.endpoint_no, e.expires_at, e.is_encrypted
  );
end
$$;
