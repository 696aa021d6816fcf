-- CREATE MESSAGE TYPE.
--
-- Validation: NONE, EMPTY, WELL_FORMED_XML, VALID_XML, which needs a schema collection, or
-- VALID_JSON, which is ours: the body parses as JSON.
-- Errors: 103 and 153 name, 153 validation, 208 schema collection, 229 no right, 2714 exists.
create or replace function broker.create_message_type(
  name text, validation text default 'NONE', schema_collection text default null, owner text default null
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_message_type(current_user, name, validation, schema_collection, owner);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_message_type(
  caller name, type_name text, type_validation text, type_schema_collection text, type_owner text
)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  owner_role regrole;
  new_id integer;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('message type', type_name);
  owner_role := broker_private.require_creation(caller, 'message type', type_owner);
  insert into broker_private.message_types (name, owner, validation, schema_collection_id)
  values (
    type_name, owner_role, broker_private.validation_code(type_name, type_validation),
    broker_private.collection_for(caller, type_name, type_validation, type_schema_collection)
  )
  on conflict (name) do nothing
  returning message_type_id into new_id;
  if new_id is null then
    found := broker_private.refuse_duplicate('message type', type_name);
  end if;
  -- Every contract may list it, until that is revoked.
  insert into broker_private.permissions (class, securable_id, permission, grantee)
  values ('<message type>', new_id, 'REFERENCES', row(0, null));
  return true;
end
$$;

comment on function broker.create_message_type(text, text, text, text) is
$$CREATE MESSAGE TYPE: a name for messages, and how their bodies are validated.

name: at most 128 characters, matched byte by byte; the same on both sides of a conversation.
validation: NONE; EMPTY: no body; WELL_FORMED_XML; VALID_XML: by a schema collection; VALID_JSON:
  parses as JSON, ours.
schema_collection: for VALID_XML, of broker.create_schema_collection.
owner: a role; NULL is the caller.

Rights: CREATE on the database; to name another owner, membership in that role.
Errors: 103, 153, 208, 229, 2714
Example: select broker.create_message_type('//shop/cancel', 'VALID_JSON');$$;
