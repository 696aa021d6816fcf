-- hot path
-- Many messages on one dialog, in the order of the array, all or none.
--
-- Ours: Service Broker has one SEND for each. As in broker.send, what the send plan on the group's
-- row allows is done here, and all else by send_slowly. It takes a few statements, whatever the
-- number of bodies.
-- Locks: as broker.send.
-- Plan: as broker.send's; what is inserted is read from the array alone, in its order.
-- Errors: as broker.send; an error in one body refuses all.
create or replace function broker.send_batch(conversation_handle uuid, message_type text, bodies bytea[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.send_batch(current_user, conversation_handle, message_type, bodies);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.send_batch(caller name, handle uuid, type_name text, contents bytea[])
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  stack text;
  made bigint;
  target bigint;
  place integer;
  level smallint;
  type_id integer;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if contents is null or array_ndims(contents) > 1 then
    found := broker_private.refuse(
      8433, 'The list of message bodies is not a list of one dimension.', 'Give an array of bytea; for an empty body use ''.'
    );
  end if;
  -- Where all bodies together are not too large none is.
  if pg_column_size(contents) <= broker_private.largest_body() and array_position(contents, null) is null then
    select g.send_made, g.send_target, g.send_place, g.send_precedence, (g.send_types -> type_name)::integer
    into made, target, place, level, type_id
    from broker_private.groups g
    where g.send_handle = handle and g.send_expires_at > broker_private.clock()
      and pg_has_role(caller, g.send_receiver, 'USAGE') is not false
    for update;
  end if;
  if type_id is null or not broker_private.put_messages(made, target, place, level, type_id, contents) then
    return broker_private.send_slowly(caller, handle, type_name, contents);
  end if;
  return true;
end
$$;

comment on function broker.send_batch(uuid, text, bytea[]) is
$$Ours: sends many messages on one dialog, in the order of the array, all or none.

conversation_handle: of this side.
message_type: one that the contract lets this side send.
bodies: one message each.

Rights, locks and errors: as broker.send(uuid, text, bytea).
Example: select broker.send_batch(:'handle', '//shop/order', array['\x7b7d', '\x7b7d']::bytea[]);$$;
