-- BEGIN DIALOG CONVERSATION; returns the conversation handle.
--
-- Creates the initiator's endpoint and nothing else: the target may not exist yet. A lifetime of
-- NULL is 2^31-1 seconds.
-- Locks: the group's row (a new group is nobody else's yet).
-- Errors: 8423 from_service, 8425 contract, 8413 broker_instance, 8411 lifetime, 8426 related
-- conversation, 8421 no to_service, 9610 a group of another service, 229 no RECEIVE on the
-- service's queue or no REFERENCES on the contract.
create or replace function broker.begin_dialog(
  from_service text,
  to_service text,
  contract text default 'DEFAULT',
  broker_instance text default null,
  related_conversation uuid default null,
  related_conversation_group uuid default null,
  lifetime interval default null,
  encryption boolean default true
)
returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  handle uuid;
begin
  loop
    handle := broker_private.begin_dialog(
      current_user, from_service, to_service, contract, broker_instance, related_conversation, related_conversation_group,
      lifetime, encryption
    );
    exit when handle is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return handle;
end
$$;

create or replace function broker_private.begin_dialog(
  caller name, from_service text, to_service text, contract_name text, instance text, related uuid, related_group uuid,
  lifetime interval, encryption boolean
)
returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  stack text;
  this record;
  member broker_private.endpoints%rowtype;
  conversation_group broker_private.groups%rowtype;
  handle uuid := gen_random_uuid();
  endpoint bigint;
  instance_guid uuid;
  expiry timestamp with time zone;
  longest constant interval := make_interval(secs => 2147483647);
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  -- What is refused, or rests on a grant, is looked up by itself.
  select s.service_id, s.queue_id, q.owner as queue_owner, c.contract_id, c.owner as contract_owner
  into this
  from broker_private.services s
  join broker_private.queues q on q.queue_id = s.queue_id
  left join broker_private.contracts c on c.name = contract_name
  where s.name = from_service and s.service_id >= 65536;
  if not found then
    perform broker_private.find_service(from_service);
  elsif not broker_private.is_owner(caller, this.queue_owner) then
    perform broker_private.require_receive(caller, this.queue_id);
  end if;
  if to_service is null or to_service = '' then
    found := broker_private.refuse(8421, 'The target service name is missing.', 'Give to_service: the name of the service to talk to.');
  end if;
  if length(to_service) > 128 then
    perform broker_private.check_name('target service', to_service);
  end if;
  if this.contract_id is null then
    perform broker_private.find_contract(contract_name);
  elsif this.contract_id >= 65536 and not broker_private.is_owner(caller, this.contract_owner) then
    perform broker_private.require_reference(caller, this.contract_id);
  end if;
  instance_guid := broker_private.parse_broker_instance(instance);
  if lifetime is not null and (lifetime <= interval '0' or lifetime > longest) then
    found := broker_private.refuse(
      8411, format('The lifetime %s of the dialog is out of range.', lifetime), 'Use more than 0 and at most 2147483647 seconds.'
    );
  end if;
  expiry := broker_private.clock() + coalesce(lifetime, longest);
  if encryption is null then
    found := broker_private.refuse(153, 'The option encryption of the dialog is NULL.', 'Use true or false.');
  end if;
  if related is not null and related_group is not null then
    found := broker_private.refuse(
      153, 'related_conversation and related_conversation_group are both given.', 'Give one of them: they mean the same group.'
    );
  end if;
  if related is not null then
    member := broker_private.lock_group_of(related);
    select g.* into conversation_group from broker_private.groups g where g.group_no = member.group_no;
  elsif related_group is not null then
    -- The group may go while this waits for its lock: then there is none, and it is made anew.
    loop
      insert into broker_private.groups (conversation_group_id, service_id, queue_id)
      values (related_group, this.service_id, this.queue_id)
      on conflict (conversation_group_id) do nothing;
      select g.* into conversation_group
      from broker_private.groups g
      where g.conversation_group_id = related_group
      for update;
      exit when found;
    end loop;
  end if;
  if conversation_group.service_id <> this.service_id then
    found := broker_private.refuse(
      9610, format('The service "%s" does not match the service of the related conversation group %s.', from_service, conversation_group.conversation_group_id),
      'All conversations of a group belong to one service of this database: begin the dialog from that service, or in a group of its own.'
    );
  end if;
  endpoint := broker_private.new_endpoint(
    handle, gen_random_uuid(), true, conversation_group.group_no, this.service_id, from_service,
    coalesce(conversation_group.queue_id, this.queue_id), this.contract_id, contract_name, to_service, instance_guid, '<unsent>', null, expiry, encryption, broker_private.find_role(caller)
  );
  -- A worker, which looks once in five seconds, would be late.
  if lifetime <= interval '5 s' then
    perform broker_private.wake_sleepers(-1);
  end if;
  return handle;
end
$$;

comment on function broker.begin_dialog(text, text, text, text, uuid, uuid, interval, boolean) is
$$BEGIN DIALOG CONVERSATION: begins a conversation. Nothing leaves before the first SEND, and the
target need not exist yet.

from_service: the service on this side, in this database.
to_service: the service on the far side, byte by byte.
contract: what both sides may send.
broker_instance: guid of the database where the target is, or CURRENT DATABASE; NULL is any.
related_conversation: the handle of a conversation whose group the new one joins.
related_conversation_group: the group that it joins; one that is not there yet is created.
lifetime: after it the conversation ends with an Error; NULL is 2^31-1 seconds.
encryption: false lets messages leave in the clear where no binding secures them.

Returns: the conversation handle of this side.
Rights: RECEIVE on the service's queue; REFERENCES on the contract.
Locks: the group's row, until the transaction ends.
Errors: 229, 8411, 8413, 8421, 8423, 8425, 8426, 9610
Example: select broker.begin_dialog('//shop/orders', '//shop/warehouse', '//shop/ordering', lifetime => '1 day');$$;
