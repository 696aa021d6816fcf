-- ALTER DATABASE SET ENABLE_BROKER and its like, by the database's owner.
--
-- The others are DISABLE_BROKER, NEW_BROKER and ERROR_BROKER_CONVERSATIONS. Disabled: SEND goes on,
-- messages wait in the transmission queue (9791), nothing arrives. A copy of a database is disabled
-- by itself (9773): the other three make it a broker of its own right. Enabled: with the guid that
-- it has. New: another guid, and all conversations are gone, nobody is told. Error: each
-- conversation gets an Error, -9719 here and -9720 on the far side; the guid stays.
-- honor_broker_priority: whether messages to other brokers leave by the priority of their
-- conversations, those that wait already too.
-- Locks: NEW_BROKER the tables of conversations, so it waits for every transaction that uses them;
-- not in their way, see forget_conversations.
-- Errors: 153 action, 229.
create or replace function broker.alter_broker(action text default null, honor_broker_priority boolean default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
begin
  loop
    done := broker_private.alter_broker(current_user, action, honor_broker_priority);
    exit when done is not null;
    done := broker_private.vouch(current_user);
  end loop;
end
$$;

create or replace function broker_private.alter_broker(caller name, requested text, honor boolean)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  e broker_private.endpoints%rowtype;
  endpoint bigint;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  perform broker_private.require_database_ownership(caller, 'broker');
  if honor is not null then
    update broker_private.broker_instance b set is_broker_priority_honored = honor;
  end if;
  if requested is null and honor is not null then
    return true;
  end if;
  -- Marks name transactions of the server that a copy was made from.
  perform broker_private.reset_marks(q.queue_id)
  from broker_private.queues q
  cross join broker_private.broker_instance b
  where b.system_identifier is distinct from broker_private.system_identifier();
  case coalesce(requested, 'NULL')
    when 'ENABLE_BROKER' then
      perform broker_private.enable_broker();
      perform broker_private.deliver_dialog(w.endpoint_no) from broker_private.local_dialogs_waiting() w;
    when 'DISABLE_BROKER' then
      update broker_private.broker_instance b set is_broker_enabled = false;
    when 'NEW_BROKER' then
      perform broker_private.forget_conversations();
      delete from broker_private.destinations d where d.destination_no <> 0;
      update broker_private.broker_instance b set service_broker_guid = gen_random_uuid();
      perform broker_private.enable_broker();
    when 'ERROR_BROKER_CONVERSATIONS' then
      for endpoint in
        select x.endpoint_no from broker_private.endpoints x where x.local_end is null order by x.endpoint_no
      loop
        select x.* into e from broker_private.endpoints x where x.endpoint_no = endpoint;
        if broker_private.put_broker_error(endpoint, 9719, broker_private.fault_text(row(9719, null)::broker_private.fault)) then
          perform broker_private.tell_far_side(e, -9720, broker_private.fault_text(row(9720, null)::broker_private.fault));
        end if;
      end loop;
      perform broker_private.enable_broker();
      perform broker_private.deliver_dialog(w.endpoint_no) from broker_private.local_dialogs_waiting() w;
    else
      found := broker_private.refuse(
        153, format('"%s" is not an action for the broker.', coalesce(requested, 'NULL')),
        'Use ENABLE_BROKER, DISABLE_BROKER, NEW_BROKER or ERROR_BROKER_CONVERSATIONS.'
      );
  end case;
  return true;
end
$$;

comment on function broker.alter_broker(text, boolean) is
$$ALTER DATABASE ... SET ENABLE_BROKER and its kin: turns the broker on or off, or makes it another
one.

action: ENABLE_BROKER; DISABLE_BROKER: SEND goes on, nothing leaves or arrives; NEW_BROKER:
  another guid, and all conversations are gone without a word; ERROR_BROKER_CONVERSATIONS: every
  conversation gets an Error. NULL leaves all that as it is.
honor_broker_priority: whether messages to other brokers leave by their priority. NULL leaves it
  as it is.

Rights: the database's owner.
Locks: NEW_BROKER waits for every transaction that uses conversations, and they wait for it.
Errors: 153, 229
Example: select broker.alter_broker(honor_broker_priority => true);$$;
