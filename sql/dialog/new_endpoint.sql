-- One side of a dialog, with its counters and its destination.
--
-- Without the number of a group it gets one of its own. Returns its number.
-- Why: one statement, as each costs as much as a row. No function in SQL that has a subquery: it is
-- planned anew at each call. No sorting, which costs as much as to insert into two indexes: of a
-- destination that there is twice any will do.
create or replace function broker_private.new_endpoint(
  handle uuid, conversation uuid, initiator boolean, group_number bigint, service integer, service_name text, queue integer,
  contract integer, contract_name text, far_service_name text, far_instance uuid, initial_path "char", far_endpoint bigint,
  expiry timestamp with time zone, encryption boolean, owner_role regrole
)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  number constant bigint := nextval('broker_private.endpoints_endpoint_no_seq');
  is_alone constant boolean := group_number is null;
  group_id uuid := gen_random_uuid();
begin
  if is_alone then
    group_number := nextval('broker_private.groups_group_no_seq');
  else
    select g.conversation_group_id into group_id from broker_private.groups g where g.group_no = group_number;
  end if;
  with made as (
    insert into broker_private.groups (group_no, conversation_group_id, service_id, queue_id) overriding system value
    select group_number, group_id, service, queue where is_alone
  ),
  counted as (
    insert into broker_private.sequence_counters (endpoint_no, kind, epoch, next_number, padding)
    values (number, '<next acknowledged>', 0, 0, null), (number, '<next expected>', 0, 0, null), (number, '<next received>', 0, 0, repeat(' ', 120))
  )
  insert into broker_private.endpoints (
    endpoint_no, conversation_handle, conversation_id, is_initiator, group_no, service_id, queue_id, contract_id, far_service,
    far_broker_instance, destination_no, path, far_endpoint_no, priority, expires_at, is_encrypted, owner,
    service_name, contract_name, conversation_group_id
  )
  overriding system value
  values (
    number, handle, conversation, initiator, group_number, service, queue, contract, far_service_name,
    far_instance,
    coalesce(
      (
        select d.destination_no from broker_private.destinations d
        where d.service_name = far_service_name and d.broker_instance is not distinct from far_instance
        limit 1
      ),
      broker_private.destination_of(far_service_name, far_instance)
    ),
    initial_path, far_endpoint,
    case when exists (select from broker_private.priorities) then broker_private.priority_for(contract, service, far_service_name) else 5 end,
    expiry, encryption, owner_role,
    service_name, contract_name,
    group_id
  );
  return number;
end
$$;
