-- ALTER QUEUE.
--
-- Arguments that are not given (NULL) leave the option as it is; drop_activation removes procedure,
-- readers and role. A queue turned on gets what waited for it in this database at once, and its
-- rollbacks are counted from zero. Retention turned off leaves what was kept until its conversation
-- ends. With a schema the queue's view moves there, with the caller's rights: it needs CREATE on
-- the schema, and to own the view.
-- Errors: 208 not found, 229 not the owner or not a member of the new one, and those of
-- create_queue.
create or replace function broker.alter_queue(
  name text,
  status boolean default null,
  retention boolean default null,
  activation_procedure text default null,
  max_queue_readers integer default null,
  activation_status boolean default null,
  execute_as text default null,
  poison_message_handling boolean default null,
  poison_action text default null,
  scaling text default null,
  watchdog interval default null,
  owner text default null,
  schema text default null,
  drop_activation boolean default false
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  old_schema name;
begin
  loop
    old_schema := broker_private.alter_queue(
      current_user, name, status, retention, activation_procedure, max_queue_readers, activation_status, execute_as,
      poison_message_handling, poison_action, scaling, watchdog, owner, schema, drop_activation
    );
    exit when old_schema is not null;
    done := broker_private.vouch(current_user);
  end loop;
  if schema <> old_schema then
    if to_regclass(format('%I.%I', schema, name)) is not null then
      found := broker_private.refuse(
        2714, format('There is already a relation named %I.%I.', schema, name),
        'Choose another name for the queue, or another schema for its view.'
      );
    end if;
    execute format('alter view if exists %I.%I set schema %I', old_schema, name, schema);
  end if;
end
$$;

create or replace function broker_private.alter_queue(
  caller name, queue_name text, status boolean, retention boolean, procedure_name text, readers integer,
  activation boolean, run_as text, poison_handling boolean, poison text, scaling_policy text, watchdog_interval interval,
  new_owner text, new_schema text, without_activation boolean
)
returns name
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.queues%rowtype;
  old_schema name;
  owner_role regrole;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_queue(queue_name);
  perform broker_private.require_ownership(caller, this.owner, 'queue', this.name);
  if without_activation is null then
    found := broker_private.refuse(153, format('drop_activation is NULL for the queue "%s".', this.name), 'Use true or false.');
  end if;
  old_schema := this.view_schema;
  if new_schema <> old_schema then
    perform broker_private.check_view_schema(caller, new_schema);
    update broker_private.queues q set view_schema = new_schema where q.queue_id = this.queue_id;
    this.view_schema := new_schema;
  end if;
  -- Rollbacks may have turned it off with nobody there yet to write that down; no other option turns it on again.
  if broker_private.is_poisoned(this.queue_id) then
    perform broker_private.disable_poisoned_queue(this.queue_id);
    this := broker_private.find_queue(queue_name);
  end if;
  if without_activation then
    this.activation_procedure := null;
    this.max_readers := null;
    this.is_activation_enabled := false;
    this.execute_as := null;
  else
    -- Whoever names a procedure must be allowed to act as the role that will run it, as whoever names the role must.
    if procedure_name is not null or run_as is not null then
      this.execute_as := broker_private.activation_runner(
        caller, coalesce(run_as, case when this.activation_procedure is null then 'SELF' else pg_get_userbyid(coalesce(this.execute_as, this.owner))::text end), this.name
      );
    end if;
    this.is_activation_enabled := coalesce(
      activation, this.is_activation_enabled or this.activation_procedure is null and procedure_name is not null
    );
    this.activation_procedure := coalesce(procedure_name, this.activation_procedure);
    this.max_readers := coalesce(readers, this.max_readers);
  end if;
  perform broker_private.set_queue_options(
    this.queue_id, coalesce(status, this.is_receive_enabled), coalesce(retention, this.is_retention_enabled),
    this.activation_procedure, this.max_readers, this.is_activation_enabled, this.execute_as,
    coalesce(poison_handling, this.is_poison_message_handling_enabled), coalesce(poison, this.poison_action),
    coalesce(scaling_policy, this.scaling), coalesce(watchdog_interval, this.watchdog)
  );
  if status then
    perform broker_private.reset_marks(this.queue_id);
    perform broker_private.deliver_waiting(this.queue_id);
  elsif not status then
    perform broker_private.wake_sleepers(this.queue_id);
  end if;
  if new_owner is not null then
    perform broker_private.check_role_name('owner', new_owner);
    owner_role := broker_private.find_role(new_owner::name);
    perform broker_private.require_ownership(caller, owner_role, 'owner', new_owner);
    update broker_private.queues q set owner = owner_role where q.queue_id = this.queue_id;
    if this.activation_procedure is not null and this.execute_as is null then
      perform broker_private.activation_runner(caller, 'OWNER', this.name);
    end if;
  end if;
  if procedure_name is not null or run_as is not null or new_owner is not null and this.execute_as is null then
    perform broker_private.require_execute(this.queue_id);
  end if;
  return old_schema;
end
$$;

comment on function broker.alter_queue(text, boolean, boolean, text, integer, boolean, text, boolean, text, text, interval, text, text, boolean) is
$$ALTER QUEUE: changes options of a queue, turns it on again, gives it another owner or schema.

name: of the queue.
status, retention, activation_procedure, max_queue_readers, activation_status, execute_as,
  poison_message_handling, poison_action, scaling, watchdog: as broker.create_queue. NULL leaves
  one as it is.
owner: the role that has the queue from now on.
schema: where the queue's view moves to.
drop_activation: true removes procedure, number of readers and role.

Rights: the owner of the queue, or of the database; membership in a new owner, and SET on it if the
  procedure runs as OWNER; CREATE on a new schema, and to own the view. Who runs the procedure
  needs what broker.create_queue says.
Errors: 103, 153, 208, 229, 2714, 9614, 9620, 9653, 9742
Example: select broker.alter_queue('warehouse', status => true);$$;
