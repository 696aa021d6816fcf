-- ALTER SERVICE: which contracts it accepts as a target, and which queue it has.
--
-- Conversations that exist go on, and go to the new queue with their messages, in their order. What
-- is being sent to them meanwhile lands in the old queue, and follows: see sql/README.md, "What
-- moves".
-- Locks: with a queue, the service's row, then its groups in their order: it waits for sessions
-- that work on them.
-- Errors: 8423 not found, 8493 nothing to change, 208 queue, 8425 contract, 8404 accepted already,
-- 153, 229.
create or replace function broker.alter_service(
  name text, queue text default null, add_contracts text[] default '{}', drop_contracts text[] default '{}'
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_service(current_user, name, queue, add_contracts, drop_contracts);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_service(
  caller name, service_name text, new_queue text, added text[], dropped text[]
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.services%rowtype;
  queue broker_private.queues%rowtype;
  contract broker_private.contracts%rowtype;
  contract_name text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_service(service_name);
  perform broker_private.require_ownership(caller, this.owner, 'service', service_name);
  perform broker_private.check_contract_list(service_name, added);
  perform broker_private.check_contract_list(service_name, dropped);
  if new_queue is not null then
    queue := broker_private.find_queue(new_queue);
    perform broker_private.require_ownership(caller, queue.owner, 'queue', queue.name);
  end if;
  if cardinality(added) + cardinality(dropped) = 0 and coalesce(queue.queue_id = this.queue_id, true) then
    found := broker_private.refuse(
      8493, format('Nothing is to be changed of the service "%s".', service_name), 'Give another queue, add_contracts or drop_contracts.'
    );
  end if;
  foreach contract_name in array dropped loop
    contract := broker_private.find_contract(contract_name);
    delete from broker_private.service_contracts c where c.service_id = this.service_id and c.contract_id = contract.contract_id;
    if not found then
      found := broker_private.refuse(
        8425, format('The service "%s" does not accept the contract "%s".', service_name, contract_name),
        'broker.service_contract_usages lists what it accepts.'
      );
    end if;
  end loop;
  foreach contract_name in array added loop
    contract := broker_private.find_contract(contract_name);
    perform broker_private.require_reference(caller, contract.contract_id);
    insert into broker_private.service_contracts (service_id, contract_id) values (this.service_id, contract.contract_id)
    on conflict do nothing;
    if not found then
      found := broker_private.refuse(
        8404, format('The service "%s" accepts the contract "%s" already.', service_name, contract_name), 'List only new contracts.'
      );
    end if;
  end loop;
  if queue.queue_id <> this.queue_id then
    select s.queue_id into this.queue_id from broker_private.services s where s.service_id = this.service_id for update;
    insert into broker_private.moved_services as v (service_id, old_queue_id, moved_at, moved_by)
    values (this.service_id, this.queue_id, broker_private.clock(), pg_current_xact_id())
    on conflict (service_id, old_queue_id) do update
    set moved_at = excluded.moved_at, moved_by = excluded.moved_by, place = 0, is_last_round = false;
    update broker_private.services s set queue_id = queue.queue_id where s.service_id = this.service_id;
    this.queue_id := queue.queue_id;
    perform broker_private.rehome_service(this.service_id, true);
  end if;
  perform broker_private.deliver_waiting(this.queue_id);
  return true;
end
$$;

comment on function broker.alter_service(text, text, text[], text[]) is
$$ALTER SERVICE: which contracts a service accepts as a target, and which queue it has. Its
conversations go to the new queue with their messages, in order.

name: of the service.
queue: another queue; NULL keeps the one that it has.
add_contracts, drop_contracts: arrays of contracts' names.

Rights: the owner of the service, or of the database; to own a new queue; REFERENCES on contracts
  that are added.
Locks: with a queue, the service's row, then its groups: it waits for sessions that work on them.
Errors: 153, 208, 229, 8404, 8423, 8425, 8493
Example: select broker.alter_service('//shop/orders', add_contracts => '{//shop/ordering}');$$;
