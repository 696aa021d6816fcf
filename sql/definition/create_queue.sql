-- CREATE QUEUE, and the view of the same name that shows the queue's messages.
--
-- The view is made with the caller's rights, so it needs CREATE on the schema.
-- Errors: 103 and 153 arguments, 2714 the queue or a relation of that name exists, 229 no right,
-- 9614, 9620, 9653, 9742 procedure.
create or replace function broker.create_queue(
  name text,
  status boolean default true,
  retention boolean default false,
  activation_procedure text default null,
  max_queue_readers integer default null,
  activation_status boolean default true,
  execute_as text default 'SELF',
  poison_message_handling boolean default true,
  poison_action text default 'DISABLE_QUEUE',
  scaling text default 'SERVICE_BROKER',
  watchdog interval default '60 s',
  owner text default null,
  schema text default current_schema()
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  new_id integer;
  other name;
begin
  loop
    new_id := broker_private.create_queue(
      current_user, name, status, retention, activation_procedure, max_queue_readers, activation_status, execute_as,
      poison_message_handling, poison_action, scaling, watchdog, owner, schema
    );
    exit when new_id is not null;
    done := broker_private.vouch(current_user);
  end loop;
  if to_regclass(format('%I.%I', schema, name)) is not null then
    found := broker_private.refuse(
      2714, format('There is already a relation named %I.%I.', schema, name),
      'Choose another name for the queue, or another schema for its view.'
    );
  end if;
  execute format(
    'create view %I.%I as select status, priority, queuing_order, conversation_group_id, conversation_handle,'
    ' message_sequence_number, service_name, service_id, service_contract_name, service_contract_id, message_type_name,'
    ' message_type_id, validation, message_body, message_id, message_enqueue_time'
    ' from broker.queue_messages where queue_id = %s', schema, name, new_id
  );
  -- Default privileges have no say: the view is the broker's. Afterwards its owner may grant what he likes.
  execute format('revoke all on %I.%I from public', schema, name);
  for other in
    select distinct pg_get_userbyid(a.grantee)
    from pg_class c
    cross join aclexplode(c.relacl) a
    where c.oid = to_regclass(format('%I.%I', schema, name)) and a.grantee not in (0, c.relowner)
  loop
    execute format('revoke all on %I.%I from %I', schema, name, other);
  end loop;
  -- Everybody may look: the view shows messages to those only who may receive them.
  execute format('grant select on %I.%I to public', schema, name);
end
$$;

create or replace function broker_private.create_queue(
  caller name, queue_name text, status boolean, retention boolean, procedure_name text, readers integer,
  activation boolean, run_as text, poison_handling boolean, poison text, scaling_policy text, watchdog_interval interval,
  queue_owner text, schema_name text
)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  owner_role regrole;
  new_id integer;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if octet_length(queue_name) > 63 then
    found := broker_private.refuse(
      103, format('The name of the queue that starts with "%s" is too long: %s bytes.', left(queue_name, 32), octet_length(queue_name)),
      'The name of a queue has at most 63 bytes, as its view has it too.'
    );
  end if;
  perform broker_private.check_name('queue', queue_name);
  if starts_with(queue_name, '#') then
    found := broker_private.refuse(153, format('The name of the queue "%s" begins with #.', queue_name), 'There are no temporary queues.');
  end if;
  if schema_name is null then
    found := broker_private.refuse(
      153, format('There is no schema for the view of the queue "%s".', queue_name),
      'Give the argument schema: your search_path names no schema that exists.'
    );
  end if;
  perform broker_private.check_view_schema(caller, schema_name);
  owner_role := broker_private.require_creation(caller, 'queue', queue_owner);
  insert into broker_private.queues (
    name, view_schema, owner, is_receive_enabled, is_enqueue_enabled, is_retention_enabled,
    is_poison_message_handling_enabled, poison_action, scaling, watchdog, create_date, modify_date
  )
  values (
    queue_name, schema_name, owner_role, true, true, false,
    true, 'DISABLE_QUEUE', 'SERVICE_BROKER', '60 s', broker_private.clock(), broker_private.clock()
  )
  on conflict (name) do nothing
  returning queue_id into new_id;
  if new_id is null then
    found := broker_private.refuse_duplicate('queue', queue_name);
  end if;
  perform broker_private.set_queue_options(
    new_id, status, retention, procedure_name, readers, procedure_name is not null and activation,
    broker_private.activation_runner(caller, run_as, queue_name),
    poison_handling, poison, scaling_policy, watchdog_interval
  );
  perform broker_private.require_execute(new_id);
  return new_id;
end
$$;

comment on function broker.create_queue(text, boolean, boolean, text, integer, boolean, text, boolean, text, text, interval, text, text) is
$$CREATE QUEUE: a queue, and a view of the same name that shows its messages.

name: taken literally, unique in the database, at most 63 bytes.
status: false creates it turned off: RECEIVE is refused, and messages wait.
retention: true keeps messages until their conversation ends.
activation_procedure: a procedure without arguments that workers CALL while messages wait.
max_queue_readers: how many of it run at the same time at most.
activation_status: false starts no more readers.
execute_as: the role that the procedure runs as; SELF is the caller, OWNER the owner of the queue.
poison_message_handling: false lets transactions roll back for ever.
poison_action: what five rollbacks in a row do: DISABLE_QUEUE, or QUARANTINE: set the conversation
  aside. Ours.
scaling: SERVICE_BROKER: one more reader at a time; BACKLOG: by what waits. Ours.
watchdog: after how long a reader that never receives is given up; 0 is never. Ours.
owner: a role; NULL is the caller.
schema: where the view is created.

Rights: CREATE on the database and on the schema; to name another owner, membership in that role.
  The role that runs the procedure needs EXECUTE on it, and USAGE on its schema.
Errors: 103, 153, 229, 2714, 9614, 9620, 9653, 9742
Example: select broker.create_queue('returns', poison_action => 'QUARANTINE');$$;
