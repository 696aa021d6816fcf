-- CREATE CONTRACT.
-- Errors: 8428 unknown type, 8403 a type twice, 8492 nothing for the initiator, 2714 exists, 103,
-- 153, 229.
create or replace function broker.create_contract(
  name text,
  sent_by_initiator text[] default '{}',
  sent_by_target text[] default '{}',
  sent_by_any text[] default '{}',
  owner text default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_contract(current_user, name, sent_by_initiator, sent_by_target, sent_by_any, owner);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_contract(
  caller name, contract_name text, by_initiator text[], by_target text[], by_any text[], contract_owner text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  owner_role regrole;
  new_id integer;
  type_name text;
  type_names text[];
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('contract', contract_name);
  owner_role := broker_private.require_creation(caller, 'contract', contract_owner);
  if by_initiator is null or by_target is null or by_any is null then
    found := broker_private.refuse(
      153, format('A list of message types of contract "%s" is NULL.', contract_name), 'Leave the list out, or give ''{}''.'
    );
  elsif greatest(array_ndims(by_initiator), array_ndims(by_target), array_ndims(by_any)) > 1 then
    found := broker_private.refuse(
      153, format('A list of message types of contract "%s" has more than one dimension.', contract_name), 'Give a list like ''{order,ack}''.'
    );
  end if;
  type_names := by_initiator || by_target || by_any;
  foreach type_name in array type_names loop
    perform broker_private.require_type_reference(caller, broker_private.find_message_type(type_name));
  end loop;
  select n.name into type_name from unnest(type_names) n (name) group by n.name having count(*) > 1 limit 1;
  if type_name is not null then
    found := broker_private.refuse(
      8403, format('The message type "%s" is listed more than once in contract "%s".', type_name, contract_name),
      'List a type once; sent_by_any is for a type that both sides send.'
    );
  end if;
  if cardinality(by_initiator) + cardinality(by_any) = 0 then
    found := broker_private.refuse(
      8492, format('The contract "%s" has no message type that the initiator may send.', contract_name),
      'Put at least one type into sent_by_initiator or sent_by_any.'
    );
  end if;
  insert into broker_private.contracts (name, owner) values (contract_name, owner_role)
  on conflict (name) do nothing
  returning contract_id into new_id;
  if new_id is null then
    found := broker_private.refuse_duplicate('contract', contract_name);
  end if;
  insert into broker_private.contract_messages
  select
    new_id, t.name, t.message_type_id, t.validation, t.name = any (by_initiator || by_any), t.name = any (by_target || by_any),
    t.schema_collection_id
  from broker_private.message_types t
  where t.name = any (type_names);
  return true;
end
$$;

comment on function broker.create_contract(text, text[], text[], text[], text) is
$$CREATE CONTRACT: which message types each side of a conversation may send.

name: of the contract, at most 128 characters, matched byte by byte.
sent_by_initiator: types that who begins the dialog may send.
sent_by_target: types that the service that was addressed may send.
sent_by_any: types that both may send. The initiator must be left something to send.
owner: a role; NULL is the caller.

Rights: CREATE on the database; REFERENCES on the types; to name another owner, membership in that
  role.
Errors: 103, 153, 229, 2714, 8403, 8428, 8492
Example: select broker.create_contract('//shop/returns', sent_by_any => '{//shop/order}');$$;
