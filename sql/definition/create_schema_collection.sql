-- CREATE XML SCHEMA COLLECTION: XML schemas for message types with validation VALID_XML.
--
-- Its owner is the caller. The server can't read XSD, so it refuses only what can't be one. A
-- worker reads the collection at once, and broker.xml_schema_collections shows what is wrong with
-- it.
-- Errors: 103, 153 name and documents, 2378 a document is no XML schema, 229 no right, 2714 exists.
create or replace function broker.create_schema_collection(name text, documents text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.create_schema_collection(current_user, name, documents);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.create_schema_collection(caller name, collection_name text, collection_documents text[])
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  most constant integer := 10 * 1024 * 1024;
  collection_owner regrole;
  document text;
  place integer := 0;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.check_name('schema collection', collection_name);
  collection_owner := broker_private.require_creation(caller, 'schema collection', null);
  if coalesce(cardinality(collection_documents), 0) = 0 or array_ndims(collection_documents) > 1 then
    found := broker_private.refuse(
      153, format('The schema collection "%s" has no list of documents.', collection_name), 'Give an array of XML schemas, one text for each document.'
    );
  elsif octet_length(array_to_string(collection_documents, '')) > most then
    found := broker_private.refuse(
      153, format('The documents of the schema collection "%s" are too large.', collection_name), format('They have at most %s bytes together.', most)
    );
  end if;
  foreach document in array collection_documents loop
    place := place + 1;
    if strpos(document, 'http://www.w3.org/2001/XMLSchema') = 0 or broker_private.is_well_formed_xml(convert_to(document, 'UTF8')) is false
      or document is null then
      found := broker_private.refuse(
        2378, format('Document %s of the schema collection "%s" is not an XML schema.', place, collection_name),
        'Each document is a whole xs:schema of http://www.w3.org/2001/XMLSchema, well-formed and without a DTD.'
      );
    end if;
  end loop;
  insert into broker_private.schema_collections (name, owner, documents, create_date)
  values (collection_name, collection_owner, collection_documents, broker_private.clock())
  on conflict (name) do nothing;
  if not found then
    found := broker_private.refuse_duplicate('schema collection', collection_name);
  end if;
  return true;
end
$$;

comment on function broker.create_schema_collection(text, text[]) is
$$CREATE XML SCHEMA COLLECTION: XML schemas for message types with validation VALID_XML. A worker
reads them at once; broker.xml_schema_collections shows what is wrong with them.

name: of the collection.
documents: XML schemas (XSD 1.0), each a whole document.

Rights: CREATE on the database.
Errors: 103, 153, 229, 2378, 2714
Example: select broker.create_schema_collection('shop', array['<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="order"/></xs:schema>']);$$;
