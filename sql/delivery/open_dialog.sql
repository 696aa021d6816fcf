-- Makes the target's side of a dialog that has no endpoint here, or names the fault.
--
-- The dialog is one of a batch. One from another worker needs SEND on the service: with full
-- security the user of its certificate, else public. first number: the lowest that the batch
-- brings; null: nothing that begins a dialog. acknowledged: so much of the dialog the sender knows
-- to have arrived, so it is not new, and was forgotten here.
create or replace function broker_private.open_dialog(
  from_broker uuid, conversation uuid, is_from_initiator boolean, from_service text, to_service text, to_broker uuid, contract_name text,
  expiry timestamp with time zone, encryption boolean, first_number bigint,
  security_kind text, far_user text, session_key bytea, acknowledged bigint,
  out endpoint_no bigint, out fault_code integer, out fault_text text, out is_final boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  service broker_private.services%rowtype;
  contract integer;
  is_listed boolean;
  queue integer;
begin
  if to_broker <> (select b.service_broker_guid from broker_private.broker_instance b where b.is_the_only_row) then
    fault_code := -9795;
    fault_text := broker_private.fault_text(row(9795, to_broker)::broker_private.fault);
    is_final := false;
    return;
  elsif not is_from_initiator or acknowledged > 0 or exists (
    -- Cleaned up, or deliver would have found it.
    select from broker_private.endpoints e where e.conversation_id = conversation and not e.is_initiator
  ) then
    fault_code := -8462;
    fault_text := 'The remote conversation endpoint is either in a state where no more messages can be exchanged, or it has been dropped.';
    is_final := true;
    return;
  end if;
  select s.* into service from broker_private.services s where s.name = to_service;
  select
    c.contract_id,
    exists (select from broker_private.service_contracts x where x.service_id = service.service_id and x.contract_id = c.contract_id)
  into contract, is_listed
  from broker_private.contracts c
  where c.name = contract_name;
  -- As open_local_dialog says.
  queue := case when is_listed or contract not in (4, 5) then service.queue_id else 3 end;
  if service.service_id is null then
    is_final := to_broker is not null;
    fault_code := case when is_final then -8490 else -9793 end;
    fault_text := format('9793: The service "%s" does not exist in the database that the route leads to.', to_service);
  elsif security_kind is distinct from '<same worker>'
    and not broker_private.is_permitted(broker_private.far_sender(security_kind, far_user), 'SEND', '<service>', service.service_id, service.owner)
  then
    is_final := true;
    fault_code := -8494;
    fault_text := format('You do not have permission to access the service "%s".', to_service);
  elsif contract is null then
    is_final := true;
    fault_code := -8425;
    fault_text := format('The service contract "%s" is not found.', contract_name);
  elsif not is_listed and contract not in (4, 5) then
    is_final := true;
    fault_code := -8408;
    fault_text := format('Target service "%s" does not support contract "%s".', to_service, contract_name);
  elsif not (select q.is_enqueue_enabled from broker_private.queues q where q.queue_id = queue) then
    is_final := false;
    fault_code := -9749;
    fault_text := broker_private.fault_text(row(9749, null)::broker_private.fault);
  elsif first_number is not null then
    endpoint_no := broker_private.new_endpoint(
      gen_random_uuid(), conversation, false, null, service.service_id, service.name, queue, contract, contract_name, from_service,
      from_broker, '<remote>', null,
      -- The far clock says when; no lifetime is longer than begin_dialog's longest, so that times can be added to it.
      greatest(
        least(expiry, broker_private.clock() + make_interval(secs => 2147483647)),
        broker_private.clock() - make_interval(secs => 2147483647)
      ),
      encryption, service.owner
    );
    insert into broker_private.dialog_security (endpoint_no, kind, far_user, session_key)
    select open_dialog.endpoint_no, security_kind::"char", broker_private.principal_of(open_dialog.far_user::name), open_dialog.session_key
    where security_kind is distinct from '<same worker>';
  end if;
end
$$;
