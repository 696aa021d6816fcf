-- Asks this database's dynamic routing service for a route or a remote service binding.
--
-- It sends a MissingRoute or MissingRemoteServiceBinding message on a conversation of its own. The
-- service answers by ending that conversation, which is noted here. One request for a service is
-- out at a time; after an answer none follows for 10 minutes. What it doesn't answer in a day ends
-- by its lifetime, which counts as an answer (forget_requests).
-- Locks: the request's row; of a conversation that is over, the group.
create or replace function broker_private.request_configuration(request_kind "char", far_service text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  request broker_private.configuration_requests%rowtype;
  source broker_private.services%rowtype;
  handle uuid := gen_random_uuid();
  element constant text := case request_kind when '<route>' then 'MissingRoute' else 'MissingRemoteServiceBinding' end;
begin
  select q.* into request
  from broker_private.configuration_requests q
  where q.kind = request_kind and q.service_name = far_service
  for update;
  if request.service_name is not null and request.answered_at is null then
    if broker_private.is_request_over(request) then
      perform broker_private.note_answer(request);
    end if;
    return;
  end if;
  insert into broker_private.configuration_requests as q (kind, service_name, conversation_handle, asked_at)
  values (request_kind, far_service, handle, broker_private.clock())
  on conflict (kind, service_name) do update
  set conversation_handle = excluded.conversation_handle, answered_at = null, asked_at = excluded.asked_at
  where q.answered_at <= broker_private.clock() - interval '10 min';
  if not found then
    return;
  end if;
  select s.* into source from broker_private.services s where s.service_id = 2;
  perform broker_private.new_endpoint(
    handle, gen_random_uuid(), true, null, source.service_id, source.name, source.queue_id, 3,
    (select c.name from broker_private.contracts c where c.contract_id = 3), 'SQL/ServiceBroker/BrokerConfiguration', null, '<unsent>', null,
    broker_private.clock() + interval '1 day', false,
    broker_private.find_role(broker_private.role_of_owner('pg_database_owner'))
  );
  perform broker_private.send_system_message(
    handle, case request_kind when '<route>' then 6 else 8 end,
    convert_to(format('<%1$s><SERVICE_NAME>%2$s</SERVICE_NAME></%1$s>', element, broker_private.xml_text(far_service)), 'UTF8')
  );
end
$$;
