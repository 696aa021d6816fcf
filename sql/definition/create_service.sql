-- CREATE SERVICE.
--
-- The contracts are those it accepts as a target.
-- Errors: 208 queue, 8425 contract, 8404 a contract twice, 2714 exists, 103, 153, 229.
create or replace function broker.create_service(
  name text, queue text, contracts text[] default '{}', owner text default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_service(current_user, name, queue, contracts, owner);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_service(
  caller name, service_name text, queue_name text, contract_names text[], service_owner text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  owner_role regrole;
  new_id integer;
  queue broker_private.queues%rowtype;
  contract broker_private.contracts%rowtype;
  contract_name text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('service', service_name);
  owner_role := broker_private.require_creation(caller, 'service', service_owner);
  queue := broker_private.find_queue(queue_name);
  perform broker_private.require_ownership(caller, queue.owner, 'queue', queue.name);
  perform broker_private.check_contract_list(service_name, contract_names);
  insert into broker_private.services (name, owner, queue_id) values (service_name, owner_role, queue.queue_id)
  on conflict (name) do nothing
  returning service_id into new_id;
  if new_id is null then
    found := broker_private.refuse_duplicate('service', service_name);
  end if;
  foreach contract_name in array contract_names loop
    contract := broker_private.find_contract(contract_name);
    perform broker_private.require_reference(caller, contract.contract_id);
    insert into broker_private.service_contracts (service_id, contract_id) values (new_id, contract.contract_id)
    on conflict do nothing;
    if not found then
      found := broker_private.refuse(
        8404, format('The contract "%s" is listed more than once for service "%s".', contract_name, service_name),
        'List each contract once.'
      );
    end if;
  end loop;
  perform broker_private.deliver_waiting(queue.queue_id);
  return true;
end
$$;

comment on function broker.create_service(text, text, text[], text) is
$$CREATE SERVICE: an address for conversations, and the queue that their messages go to.

name: at most 128 characters, matched byte by byte.
queue: where its messages go.
contracts: what dialogs to it may have; with none it can only begin dialogs.
owner: a role; NULL is the caller.

Rights: CREATE on the database; to own the queue; REFERENCES on the contracts; to name another
  owner, membership in that role.
Errors: 103, 153, 208, 229, 2714, 8404, 8425
Example: select broker.create_service('//shop/returns', 'warehouse', '{//shop/ordering}');$$;
