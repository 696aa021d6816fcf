-- The class code and the id of what a GRANT or REVOKE names, if the caller may say who uses it.
create or replace function broker_private.find_securable(
  role_name name, permission_name text, class_name text, securable_name text, grantee_name text,
  out class "char", out securable_id integer
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  service broker_private.services%rowtype;
  queue broker_private.queues%rowtype;
  contract broker_private.contracts%rowtype;
  collection broker_private.schema_collections%rowtype;
  message_type broker_private.message_types%rowtype;
begin
  perform broker_private.check_role_name('role', grantee_name);
  case coalesce(permission_name, 'NULL') || ' on ' || coalesce(class_name, 'NULL')
    when 'SEND on SERVICE' then
      service := broker_private.find_service(securable_name);
      perform broker_private.require_ownership(role_name, service.owner, 'service', service.name);
      class := '<service>';
      securable_id := service.service_id;
    when 'RECEIVE on QUEUE' then
      queue := broker_private.find_queue(securable_name);
      perform broker_private.require_ownership(role_name, queue.owner, 'queue', queue.name);
      class := '<queue>';
      securable_id := queue.queue_id;
    when 'REFERENCES on CONTRACT' then
      contract := broker_private.find_contract(securable_name);
      perform broker_private.require_ownership(role_name, contract.owner, 'contract', contract.name);
      class := '<contract>';
      securable_id := contract.contract_id;
    when 'REFERENCES on MESSAGE TYPE' then
      message_type := broker_private.find_message_type(securable_name);
      perform broker_private.require_ownership(role_name, message_type.owner, 'message type', message_type.name);
      class := '<message type>';
      securable_id := message_type.message_type_id;
    when 'REFERENCES on XML SCHEMA COLLECTION' then
      collection := broker_private.find_schema_collection(securable_name);
      perform broker_private.require_ownership(role_name, collection.owner, 'schema collection', collection.name);
      class := '<schema collection>';
      securable_id := collection.schema_collection_id;
    when 'CONNECT on ENDPOINT' then
      perform broker_private.require_database_ownership(role_name, 'endpoint');
      class := '<tcp endpoint>';
      securable_id := (broker_private.find_endpoint(securable_name)).endpoint_id;
    else
      found := broker_private.refuse(
        153, format('There is no permission %s on %s.', coalesce(permission_name, 'NULL'), coalesce(class_name, 'NULL')),
        'Use SEND on SERVICE, RECEIVE on QUEUE, REFERENCES on CONTRACT, MESSAGE TYPE or XML SCHEMA COLLECTION,'
        ' or CONNECT on ENDPOINT, in capitals.'
      );
  end case;
end
$$;
