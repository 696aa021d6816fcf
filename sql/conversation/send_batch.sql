-- broker.send_batch(conversation_handle, message_type, bodies): many messages on one dialog, in the order of the array, all or
-- none. Ours: Service Broker has one SEND for each.
-- Locks and errors: as broker.send; an error in one body refuses all.
create or replace function broker.send_batch(conversation_handle uuid, message_type text, bodies bytea[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  done := broker_private.send_batch(current_user, conversation_handle, message_type, bodies);
end
$$;

create or replace function broker_private.send_batch(caller name, handle uuid, type_name text, contents bytea[])
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform broker_private.assert_entry(caller);
  if contents is null or array_ndims(contents) > 1 then
    perform broker_private.refuse(
      8433, 'The list of message bodies is not a list of one dimension.', 'Give an array of bytea; for an empty body use ''''.'
    );
  end if;
  perform broker_private.send_slowly(caller, handle, type_name, contents);
  return true;
end
$$;
