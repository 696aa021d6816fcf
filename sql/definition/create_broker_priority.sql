-- CREATE BROKER PRIORITY: the priority, 1 to 10, of dialogs that begin from now on.
--
-- NULL is ANY.
-- Errors: 8425 contract, 8423 local service, 153 the priority, 2714 the name or the same criteria
-- exist, 103, 229.
create or replace function broker.create_broker_priority(
  name text,
  contract_name text default null,
  local_service_name text default null,
  remote_service_name text default null,
  priority_level integer default 5
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_broker_priority(
      current_user, name, contract_name, local_service_name, remote_service_name, priority_level
    );
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_broker_priority(
  caller name, priority_name text, contract_name text, local_service text, remote_service text, level integer
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('broker priority', priority_name);
  perform broker_private.require_database_ownership(caller, 'broker priority');
  perform broker_private.check_priority(priority_name, remote_service, level);
  insert into broker_private.priorities (name, contract_id, local_service_id, remote_service_name, priority_level)
  values (
    priority_name,
    case when contract_name is not null then (broker_private.find_contract(contract_name)).contract_id end,
    case when local_service is not null then (broker_private.find_service(local_service)).service_id end,
    remote_service, level
  )
  on conflict do nothing;
  if not found then
    found := broker_private.refuse(
      2714, format('There is already a broker priority named "%s", or one for the same contract and services.', priority_name),
      'broker.conversation_priorities lists them; alter or drop the existing one.'
    );
  end if;
  return true;
end
$$;

comment on function broker.create_broker_priority(text, text, text, text, integer) is
$$CREATE BROKER PRIORITY: the priority of dialogs that begin from now on and match. The most
specific match wins.

name: of the broker priority.
contract_name: dialogs on this contract; NULL is ANY.
local_service_name: dialogs of this service of the database; NULL is ANY.
remote_service_name: dialogs with a service of this name; NULL is ANY.
priority_level: 1 to 10; higher ones are received first. Without a broker priority it is 5.

Rights: the database's owner.
Errors: 103, 153, 229, 2714, 8423, 8425
Example: select broker.create_broker_priority('urgent', '//shop/ordering', priority_level => 8);$$;
