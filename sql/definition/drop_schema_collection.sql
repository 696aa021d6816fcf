-- DROP XML SCHEMA COLLECTION.
-- Errors: 208 not found, 229 not the owner, 3716 a message type uses it, or a message waits to be
-- validated by it.
create or replace function broker.drop_schema_collection(name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.drop_schema_collection(current_user, name);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.drop_schema_collection(caller name, collection_name text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  this broker_private.schema_collections%rowtype;
  type_name text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  this := broker_private.find_schema_collection(collection_name);
  perform broker_private.require_ownership(caller, this.owner, 'schema collection', this.name);
  -- Until this ends, no type can be made to use it: its foreign key locks the row.
  perform from broker_private.schema_collections c where c.schema_collection_id = this.schema_collection_id for update;
  select t.name into type_name from broker_private.message_types t where t.schema_collection_id = this.schema_collection_id limit 1;
  if type_name is not null then
    found := broker_private.refuse(
      3716, format('The schema collection "%s" cannot be dropped: message type "%s" uses it.', this.name, type_name),
      'Alter or drop the message types that use it first; broker.service_message_types lists them with their xml_collection_id.'
    );
  elsif exists (select from broker_private.incomplete_messages i where i.schema_collection_id = this.schema_collection_id) then
    found := broker_private.refuse(
      3716, format('The schema collection "%s" cannot be dropped: messages wait to be validated by it.', this.name),
      'Run pybroker worker on this database, and drop it when broker.queue_depths shows no incomplete messages.'
    );
  end if;
  delete from broker_private.permissions p where p.class = '<schema collection>' and p.securable_id = this.schema_collection_id;
  delete from broker_private.schema_collections c where c.schema_collection_id = this.schema_collection_id;
  return true;
end
$$;

comment on function broker.drop_schema_collection(text) is
$$DROP XML SCHEMA COLLECTION. One that a message type has, or a message waits to be validated by, is
refused.

name: as it was created.

Rights: the owner of the collection, or of the database.
Errors: 208, 229, 3716
Example: select broker.create_schema_collection('shop', array['<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"/>']), broker.drop_schema_collection('shop');$$;
