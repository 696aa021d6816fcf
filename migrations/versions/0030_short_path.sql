-- Each INSERT and UPDATE of an endpoint read and worked out its expression anew.
alter table broker_private.endpoints drop column if exists message_id_prefix;

-- They get arguments, or say what they did.
drop function if exists broker_private.new_endpoint(
  uuid, uuid, boolean, bigint, integer, integer, integer, text, uuid, "char", bigint, timestamp with time zone, boolean, regrole
);
drop function if exists broker_private.open_local_dialog(broker_private.endpoints, broker_private.services);
drop function if exists broker_private.lock_group_of(uuid);
drop function if exists broker_private.put_messages(bigint, bigint, integer, smallint, integer, bytea[], bigint);
drop function if exists broker_private.place_messages(broker_private.endpoints, integer, bytea[], boolean, bigint);
drop function if exists broker_private.send_slowly(name, uuid, text, bytea[], bigint);
drop function if exists broker_private.send_end(broker_private.endpoints, integer, text);
drop function if exists broker_private.close_side(broker_private.endpoints);
-- Their callers look for themselves.
drop function if exists broker_private.accept_dialog(
  uuid, broker_private.services, integer, text, uuid, "char", bigint, timestamp with time zone, boolean
);
drop function if exists broker_private.queue_for(broker_private.services, integer);
drop function if exists broker_private.accepts_contract(integer, integer);

-- A walk over many groups goes on where it was.
drop function if exists broker_private.walk_to_group(integer, bigint[], boolean, boolean);
drop function if exists broker_private.get_conversation_group(name, text, interval, uuid[]);
