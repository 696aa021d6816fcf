-- broker.alter_message_type(name, validation, schema_collection): ALTER MESSAGE TYPE. Messages already queued stay as they are.
-- Errors: 8428 not found, 9663 system type, 229 not the owner, 153 validation.
create or replace function broker.alter_message_type(name text, validation text, schema_collection text default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  done := broker_private.alter_message_type(current_user, name, validation, schema_collection);
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
  this broker_private.message_types%rowtype;
  code "char";
begin
  perform broker_private.assert_entry(caller);
  this := broker_private.find_message_type(type_name);
  perform broker_private.refuse_system_object('message type', this.name, this.message_type_id);
  perform broker_private.require_ownership(caller, this.owner, 'message type', this.name);
  code := broker_private.validation_code(this.name, type_validation, type_schema_collection);
  update broker_private.message_types t set validation = code where t.message_type_id = this.message_type_id;
  update broker_private.contract_messages m set validation = code where m.message_type_id = this.message_type_id;
  return true;
end
$$;
