-- ALTER BROKER PRIORITY; what is not given (NULL) stays, and a criterion '' becomes ANY.
--
-- Dialogs that exist keep their priority.
-- Errors: 208 not found, and those of create_broker_priority.
create or replace function broker.alter_broker_priority(
  name text,
  contract_name text default null,
  local_service_name text default null,
  remote_service_name text default null,
  priority_level integer default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_broker_priority(
      current_user, name, contract_name, local_service_name, remote_service_name, priority_level
    );
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_broker_priority(
  caller name, priority_name text, contract_name text, local_service text, remote_service text, level integer
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.priorities%rowtype;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.require_database_ownership(caller, 'broker priority');
  this := broker_private.find_priority(priority_name);
  perform broker_private.check_priority(priority_name, nullif(remote_service, ''), coalesce(level, this.priority_level));
  if contract_name is not null then
    this.contract_id := case when contract_name <> '' then (broker_private.find_contract(contract_name)).contract_id end;
  end if;
  if local_service is not null then
    this.local_service_id := case when local_service <> '' then (broker_private.find_service(local_service)).service_id end;
  end if;
  this.remote_service_name := nullif(coalesce(remote_service, this.remote_service_name), '');
  if exists (
    select from broker_private.priorities p
    where p.priority_id <> this.priority_id and p.contract_id is not distinct from this.contract_id
      and p.local_service_id is not distinct from this.local_service_id
      and p.remote_service_name is not distinct from this.remote_service_name
  ) then
    found := broker_private.refuse(
      2714, format('There is another broker priority for the contract and services that "%s" would have.', priority_name),
      'broker.conversation_priorities lists them; alter or drop the other one.'
    );
  end if;
  update broker_private.priorities p set
    contract_id = this.contract_id,
    local_service_id = this.local_service_id,
    remote_service_name = this.remote_service_name,
    priority_level = coalesce(level, p.priority_level)
  where p.priority_id = this.priority_id;
  return true;
end
$$;

comment on function broker.alter_broker_priority(text, text, text, text, integer) is
$$ALTER BROKER PRIORITY: changes a broker priority for the dialogs that begin from now on.

name: of the broker priority.
contract_name, local_service_name, remote_service_name, priority_level: as
  broker.create_broker_priority. NULL leaves one as it is, '' makes a criterion ANY.

Rights: the database's owner.
Errors: 153, 208, 229, 2714, 8423, 8425
Example: select broker.create_broker_priority('urgent', '//shop/ordering'), broker.alter_broker_priority('urgent', priority_level => 9);$$;
