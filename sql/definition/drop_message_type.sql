-- DROP MESSAGE TYPE.
-- Errors: 8428 not found, 9663 system type, 229 not the owner, 3716 a contract uses it.
create or replace function broker.drop_message_type(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_message_type(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_message_type(caller name, type_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.message_types%rowtype;
  contract_name text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_message_type(type_name);
  perform broker_private.refuse_system_object('message type', this.name, this.message_type_id);
  perform broker_private.require_ownership(caller, this.owner, 'message type', this.name);
  -- A dropped contract keeps its types while conversations on it are open, or have something to send.
  delete from broker_private.contract_messages m
  using broker_private.contracts c
  where m.message_type_id = this.message_type_id and c.contract_id = m.contract_id and c.name is null
    and not exists (
      select from broker_private.endpoints e
      where e.contract_id = c.contract_id and (
        e.local_end is null
        or exists (select from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no)
      )
    );
  select coalesce(c.name, c.dropped_name || ' (dropped, and still used by conversations)') into contract_name
  from broker_private.contract_messages m
  join broker_private.contracts c on c.contract_id = m.contract_id
  where m.message_type_id = this.message_type_id
  limit 1;
  if contract_name is not null then
    found := broker_private.refuse(
      3716, format('The message type "%s" cannot be dropped: contract "%s" uses it.', this.name, contract_name),
      'Drop the contracts that use it first; broker.service_contract_message_usages lists them.'
    );
  end if;
  delete from broker_private.permissions p where p.class = '<message type>' and p.securable_id = this.message_type_id;
  delete from broker_private.message_types t where t.message_type_id = this.message_type_id;
  return true;
end
$$;

comment on function broker.drop_message_type(text) is
$$DROP MESSAGE TYPE. Refused while a contract has it, or an open conversation on a dropped contract.

name: as it was created.

Rights: the owner of the message type, or of the database.
Errors: 229, 3716, 8428, 9663
Example: select broker.create_message_type('//shop/cancel'), broker.drop_message_type('//shop/cancel');$$;
