-- DROP CONTRACT.
--
-- Each open conversation on it ends with an Error, -8487, on both sides.
-- Errors: 8425 not found, 9663 system contract, 3716 a service or a broker priority uses it, 229.
create or replace function broker.drop_contract(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_contract(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_contract(caller name, contract_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.contracts%rowtype;
  e broker_private.endpoints%rowtype;
  endpoint bigint;
  user_of_it text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_contract(contract_name);
  perform broker_private.refuse_system_object('contract', contract_name, this.contract_id);
  perform broker_private.require_ownership(caller, this.owner, 'contract', contract_name);
  select u.name into user_of_it
  from (
    select format('service "%s"', s.name) as name
    from broker_private.service_contracts c
    join broker_private.services s on s.service_id = c.service_id
    where c.contract_id = this.contract_id
    union all
    select format('broker priority "%s"', p.name) from broker_private.priorities p where p.contract_id = this.contract_id
  ) u
  limit 1;
  if user_of_it is not null then
    found := broker_private.refuse(
      3716, format('The contract "%s" cannot be dropped: %s uses it.', contract_name, user_of_it), 'Drop what uses it first.'
    );
  end if;
  update broker_private.contracts c set name = null, dropped_name = contract_name where c.contract_id = this.contract_id;
  delete from broker_private.permissions p where p.class = '<contract>' and p.securable_id = this.contract_id;
  for endpoint in
    select x.endpoint_no from broker_private.endpoints x where x.contract_id = this.contract_id and x.local_end is null order by x.endpoint_no
  loop
    select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
    if broker_private.put_broker_error(e.endpoint_no, 8487, 'The remote contract has been dropped.') then
      perform broker_private.tell_far_side(e, -8487, 'The remote contract has been dropped.');
    end if;
  end loop;
  return true;
end
$$;

comment on function broker.drop_contract(text) is
$$DROP CONTRACT. Each open conversation on it ends with an Error, -8487, on both sides.

name: as it was created.

Rights: the owner of the contract, or of the database.
Errors: 229, 3716, 8425, 9663
Example: select broker.create_contract('//shop/returns', sent_by_any => '{//shop/order}'), broker.drop_contract('//shop/returns');$$;
