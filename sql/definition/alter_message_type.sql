-- ALTER MESSAGE TYPE.
--
-- Messages already queued stay as they are. Those that wait to be validated are validated as the
-- type was when they came. Only where their schemas are broken does the new definition count.
-- Errors: 8428 not found, 9663 system type, 229 not the owner, 153 validation, 208 schema
-- collection.
create or replace function broker.alter_message_type(name text, validation text, schema_collection text default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_message_type(current_user, name, validation, schema_collection);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_message_type(
  caller name, type_name text, type_validation text, type_schema_collection text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.message_types%rowtype;
  code "char";
  collection integer;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_message_type(type_name);
  perform broker_private.refuse_system_object('message type', this.name, this.message_type_id);
  perform broker_private.require_ownership(caller, this.owner, 'message type', this.name);
  code := broker_private.validation_code(this.name, type_validation);
  collection := broker_private.collection_for(caller, this.name, type_validation, type_schema_collection);
  select t.* into this from broker_private.message_types t where t.message_type_id = this.message_type_id for update;
  update broker_private.message_types t
  set validation = code, schema_collection_id = collection
  where t.message_type_id = this.message_type_id;
  update broker_private.contract_messages m
  set validation = code, schema_collection_id = collection
  where m.message_type_id = this.message_type_id;
  update broker_private.incomplete_messages i
  set schema_collection_id = collection
  from broker_private.schema_collections c
  where i.message_type_id = this.message_type_id and not i.is_checked
    and c.schema_collection_id = i.schema_collection_id and c.problem is not null;
  return true;
end
$$;

comment on function broker.alter_message_type(text, text, text) is
$$ALTER MESSAGE TYPE: changes how bodies of a type are validated. What is queued stays as it is.

name: of the message type.
validation, schema_collection: as broker.create_message_type.

Rights: the owner of the message type, or of the database.
Errors: 153, 208, 229, 8428, 9663
Example: select broker.alter_message_type('//shop/ack', 'EMPTY');$$;
