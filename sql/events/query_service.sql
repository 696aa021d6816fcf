-- Asks the broker of another service, on ServiceDiagnostic, how it stands.
--
-- The answer waits for read_status.
--
-- The dialog takes the services' own way, security and rights. But its group lies on the broker's
-- own queue (3), so no program of the asking service receives the answer. It lives for a minute:
-- then answer_system_contracts ends what nobody has ended.
-- Errors: 229, 8423, 8421, 153.
create or replace function broker.query_service(
  from_service text, to_service text, contract text default null, conversation_id uuid default null,
  encryption boolean default true
)
returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  handle uuid;
  done boolean;
begin
  loop
    handle := broker_private.query_service(
      current_user, from_service, to_service, contract, conversation_id, encryption
    );
    exit when handle is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return handle;
end
$$;

create or replace function broker_private.query_service(
  caller name, from_service text, to_service text, contract text, conversation_id uuid, encryption boolean
)
returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  stack text;
  service broker_private.services%rowtype;
  handle uuid := gen_random_uuid();
  query text := '';
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  service := broker_private.find_service(from_service);
  perform broker_private.require_receive(caller, service.queue_id);
  if to_service is null or to_service = '' then
    found := broker_private.refuse(
      8421, 'The target service name is missing.', 'Give to_service: the name of the service to ask about.'
    );
  end if;
  perform broker_private.check_name('target service', to_service);
  if encryption is null then
    found := broker_private.refuse(153, 'The option encryption of the dialog is NULL.', 'Use true or false.');
  end if;
  if contract is not null then
    perform broker_private.check_name('contract', contract);
    query := query || '<Contract>' || broker_private.xml_text(contract) || '</Contract>';
  end if;
  if conversation_id is not null then
    query := query || '<Conversation>' || conversation_id || '</Conversation>';
  end if;
  perform broker_private.new_endpoint(
    handle, gen_random_uuid(), true, null, service.service_id, service.name, 3, 5,
    (select c.name from broker_private.contracts c where c.contract_id = 5), to_service, null, '<unsent>', null,
    broker_private.clock() + interval '1 minute', encryption, broker_private.find_role(caller)
  );
  perform broker_private.send_system_message(handle, 11, convert_to('<Query>' || query || '</Query>', 'UTF8'));
  return handle;
end
$$;

comment on function broker.query_service(text, text, text, uuid, boolean) is
$$Asks the broker of another service how it stands, on ServiceDiagnostic; read_status has the answer.

from_service: the service on this side, in this database.
to_service: the service that is asked about, byte by byte.
contract: asks too whether that service accepts it.
conversation_id: of a conversation between the two: asks too for its state there.
encryption: false lets the question leave in the clear where no binding secures it.

Returns: a conversation handle, for read_status and for end_conversation. It lives for a minute.
Rights: RECEIVE on the queue of from_service.
Locks: nothing that others wait for.
Errors: 153, 229, 8423, 8421
Example: select broker.query_service('//shop/orders', '//shop/warehouse', '//shop/ordering');$$;
