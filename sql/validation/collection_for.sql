-- The id of the collection that a message type's definition names.
--
-- Null where the validation takes none. VALID_XML needs one, and the right to use it.
-- Errors: 153 a collection missing, or given for nothing, 208 not found, 229.
create or replace function broker_private.collection_for(role_name name, type_name text, type_validation text, collection_name text)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.schema_collections%rowtype;
begin
  if type_validation is distinct from 'VALID_XML' then
    if collection_name is not null then
      found := broker_private.refuse(
        153, format('Message type "%s" with validation %s takes no schema collection.', type_name, coalesce(type_validation, 'NULL')),
        'Leave schema_collection out, or use VALID_XML.'
      );
    end if;
    return null;
  elsif collection_name is null then
    found := broker_private.refuse(
      153, format('Message type "%s" with validation VALID_XML needs a schema collection.', type_name),
      'Give schema_collection => the name of one; broker.create_schema_collection makes one. Without schemas use WELL_FORMED_XML.'
    );
  end if;
  this := broker_private.find_schema_collection(collection_name);
  if not broker_private.is_permitted(role_name, 'REFERENCES', '<schema collection>', this.schema_collection_id, this.owner) then
    found := broker_private.refuse(
      229, format('Role "%s" may not use the schema collection "%s".', role_name, this.name),
      format('Let its owner, "%s", run: SELECT broker.grant(''REFERENCES'', ''XML SCHEMA COLLECTION'', %L, %L)', pg_get_userbyid(this.owner), this.name, role_name)
    );
  end if;
  return this.schema_collection_id;
end
$$;
