-- Refuses bodies that the sender's own message type forbids (8430).
--
-- False where this server can't tell, for want of an XML parser or as XML schemas are to match.
-- Then a worker looks before the delivery.
create or replace function broker_private.are_valid(sendable broker_private.contract_messages, contents bytea[])
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  content bytea;
  is_valid boolean;
begin
  if sendable.validation = '<no validation>' then
    return true;
  end if;
  foreach content in array contents loop
    is_valid := broker_private.is_valid_body(sendable.validation, content);
    if is_valid is null then
      return false;
    elsif not is_valid then
      found := broker_private.refuse(
        8430, format('The message body failed the validation of message type "%s".', sendable.message_type_name),
        case sendable.validation
          when '<empty>' then 'Messages of this type have no body.'
          when '<json>' then 'Send JSON, in UTF-8.'
          else 'Send a well-formed XML document, in UTF-8, with one root element and without a DTD.'
        end
      );
    end if;
  end loop;
  return sendable.schema_collection_id is null;
end
$$;
