-- CREATE EVENT NOTIFICATION, ON QUEUE or, without a queue, ON DATABASE.
--
-- From now on each such event sends a message to the service, on a conversation of the
-- notification's own. WITH FAN_IN one message is enough for all that are equal (watched_queues says
-- which). Events: QUEUE_ACTIVATION, when messages wait and somebody should read them
-- (emit_queue_activations); BROKER_QUEUE_DISABLED, when poison messages turned the queue off. The
-- service need not exist yet. It must accept the contract
-- http://schemas.microsoft.com/SQL/Notifications/PostEventNotification. The caller must be allowed
-- to send to it. Otherwise the first event ends the notification, with a reported error.
-- Locks: the queue's row, if there is one, so that activation is not turned on meanwhile.
-- Errors: 208 queue, 229 not the owner of queue or database, or no SEND on the service, 2714 one
-- of that queue, or of the database, has the name, 9718 internal activation is on, 8413 broker
-- instance, 8421 no to_service, 153 event or fan_in, 103.
create or replace function broker.create_event_notification(
  name text, queue text, event text, to_service text, broker_instance text default null,
  fan_in boolean default false
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_event_notification(
      current_user, name, queue, event, to_service, broker_instance, fan_in
    );
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_event_notification(
  caller name, notification_name text, queue_name text, event_name text, target_service text, instance text,
  is_merged boolean
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  queue broker_private.queues%rowtype;
  service broker_private.services%rowtype;
  source broker_private.services%rowtype;
  handle constant uuid := gen_random_uuid();
  instance_guid uuid;
  events text[];
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('event notification', notification_name);
  if queue_name is null then
    perform broker_private.require_ownership(
      caller, 'pg_database_owner'::regrole, 'database', current_database()
    );
  else
    queue := broker_private.find_queue(queue_name);
    perform broker_private.require_ownership(caller, queue.owner, 'queue', queue.name);
  end if;
  if is_merged is null then
    found := broker_private.refuse(153, 'fan_in is NULL.', 'Give fan_in: true or false.');
  end if;
  events := array(select distinct e from unnest(string_to_array(replace(event_name, ', ', ','), ',')) e order by 1);
  if cardinality(events) = 0 or not events <@ array['QUEUE_ACTIVATION', 'BROKER_QUEUE_DISABLED'] then
    found := broker_private.refuse(
      153, format('"%s" is not an event of a queue.', coalesce(event_name, 'NULL')),
      'Use QUEUE_ACTIVATION, BROKER_QUEUE_DISABLED, or both with a comma between them.'
    );
  end if;
  if target_service is null or target_service = '' then
    found := broker_private.refuse(8421, 'The target service name is missing.', 'Give to_service: the name of the service to notify.');
  end if;
  perform broker_private.check_name('target service', target_service);
  instance_guid := broker_private.parse_broker_instance(instance);
  select s.* into service from broker_private.services s where s.name = target_service;
  if service.service_id is not null and not broker_private.is_permitted(caller, 'SEND', '<service>', service.service_id, service.owner) then
    found := broker_private.refuse(
      229, format('Role "%s" may not send to the service "%s".', caller, target_service),
      format('Let its owner run: SELECT broker.grant(''SEND'', ''SERVICE'', %L, %L)', target_service, caller)
    );
  end if;
  select q.* into queue from broker_private.queues q where q.queue_id = queue.queue_id for update;
  if 'QUEUE_ACTIVATION' = any (events) and queue.is_activation_enabled then
    found := broker_private.refuse(
      9718, format('Internal activation is on for the queue "%s", which excludes an event notification for QUEUE_ACTIVATION.', queue.name),
      format('Turn it off first: SELECT broker.alter_queue(%L, activation_status => false)', queue.name)
    );
  end if;
  select s.* into source from broker_private.services s where s.service_id = 2;
  insert into broker_private.event_notifications (
    name, queue_id, events, service_name, broker_instance, has_fan_in, owner, conversation_handle, create_date
  )
  values (
    notification_name, queue.queue_id, events, target_service, instance_guid, is_merged,
    broker_private.find_role(caller), handle, broker_private.clock()
  )
  on conflict (queue_id, name) do nothing;
  if not found then
    found := broker_private.refuse_duplicate('event notification', notification_name);
  end if;
  perform broker_private.new_endpoint(
    handle, gen_random_uuid(), true, null, source.service_id, source.name, source.queue_id, 2,
    (select c.name from broker_private.contracts c where c.contract_id = 2), target_service, instance_guid, '<unsent>', null,
    broker_private.clock() + make_interval(secs => 2147483647), false, broker_private.find_role(caller)
  );
  return true;
end
$$;

comment on function broker.create_event_notification(text, text, text, text, text, boolean) is
$$CREATE EVENT NOTIFICATION ... ON QUEUE or ON DATABASE: sends a message to a service at each such
event of a queue, or of any queue of the database.

name: of the notification; no other of the queue, or of the database, has it.
queue: the queue that is watched. NULL is ON DATABASE: every queue, those that are created later
  too. For QUEUE_ACTIVATION that is without queues that start readers by themselves, and without the
  one that the events go to.
event: QUEUE_ACTIVATION: messages wait and somebody should read them; BROKER_QUEUE_DISABLED:
  poison messages turned the queue off; or both, with a comma between them.
to_service: who is told; it need not exist yet. It must accept
  http://schemas.microsoft.com/SQL/Notifications/PostEventNotification.
broker_instance: guid of the database where that service is, or CURRENT DATABASE; NULL is any.
fan_in: WITH FAN_IN: of several such notifications that are equal in owner, event, service and
  broker instance, one is told of each event.

Rights: the owner of the queue, or of the database; SEND on the service. Without a queue the owner
  of the database.
Locks: the queue's row, until the transaction ends.
Errors: 103, 153, 208, 229, 2714, 8413, 8421, 9718
Example: select broker.create_event_notification('warehouse waits', 'warehouse', 'QUEUE_ACTIVATION', '//shop/operators');$$;
