-- GET_TRANSMISSION_STATUS: the last problem of sending on the conversation.
--
-- '' if there is none, nothing was tried yet, or the handle is unknown.
create or replace function broker.get_transmission_status(conversation_handle uuid)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  done boolean;
  status text;
begin
  loop
    status := broker_private.get_transmission_status(current_user, conversation_handle);
    exit when status is not null;
    done := broker_private.vouch(current_user);
  end loop;
  return status;
end
$$;

create or replace function broker_private.get_transmission_status(caller name, handle uuid)
returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stack text;
  e broker_private.endpoints%rowtype;
  problem text;
begin
  get diagnostics stack = pg_context;
  if not broker_private.is_seen(stack, caller) then
    return null;
  end if;
  if handle is null then
    found := broker_private.refuse(8418, 'The conversation handle is missing.', 'Give the handle that broker.begin_dialog or broker.receive returned.');
  end if;
  select x.* into e from broker_private.endpoints x where x.conversation_handle = handle;
  if not found then
    return '';
  end if;
  perform broker_private.require_receive(caller, e.queue_id);
  if exists (select from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no) then
    problem := broker_private.broker_problem();
  end if;
  return coalesce(
    problem,
    (
      select broker_private.held_status(f.event)
      from broker_private.far_events f
      where f.endpoint_no = e.endpoint_no and f.event in ('<far end>', '<far error>') and e.local_end is null
        and exists (select from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no)
      order by f.event desc
      limit 1
    ),
    (select d.transmission_status from broker_private.destinations d where d.destination_no = e.destination_no and e.path in ('<delayed>', '<remote>')),
    (select s.status from broker_private.transmission_status s where s.endpoint_no = e.endpoint_no),
    (
      select format(
        'A worker must validate messages before the queue "%s" has them: run pybroker worker on this database.%s', q.name, ' ' || c.problem
      )
      from broker_private.incomplete_messages i
      join broker_private.queues q on q.queue_id = i.queue_id
      left join broker_private.schema_collections c on c.schema_collection_id = i.schema_collection_id
      where i.endpoint_no = e.far_endpoint_no and e.path = '<behind incomplete>' and not i.is_checked
      order by i.id
      limit 1
    ),
    ''
  );
end
$$;

comment on function broker.get_transmission_status(uuid) is
$$GET_TRANSMISSION_STATUS: the last problem of sending on a conversation.

conversation_handle: of this side.

Returns: a text that begins with Service Broker's number; empty if there is none, or the handle is
  unknown.
Rights: RECEIVE on the queue.
Errors: 229
Example: select broker.get_transmission_status(:'handle');$$;
