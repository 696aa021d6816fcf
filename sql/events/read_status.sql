-- What query_service's question was answered, null as long as nothing has come.
-- Errors: 8426, 229.
create or replace function broker.read_status(conversation_handle uuid)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  status text;
  is_seen boolean;
  done boolean;
begin
  loop
    select s.status, s.is_seen into status, is_seen
    from broker_private.read_status(current_user, conversation_handle) s;
    exit when is_seen;
    done := broker_private.vouch(current_user);
  end loop;
  return status;
end
$$;

create or replace function broker_private.read_status(
  caller name, handle uuid, out status text, out is_seen boolean
)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  stack text;
  e broker_private.endpoints%rowtype;
begin
  get diagnostics stack = pg_context;
  is_seen := broker_private.is_seen(stack, caller);
  if not is_seen then
    return;
  end if;
  select x.* into e
  from broker_private.endpoints x
  where x.conversation_handle = handle and x.is_initiator and x.queue_id = 3 and x.local_end is null;
  if not found then
    found := broker_private.refuse(
      8426, format('The conversation handle "%s" is not found.', handle), 'Give what broker.query_service returned.'
    );
  end if;
  perform broker_private.require_conversation_ownership(caller, e, 'read the answer on');
  select convert_from(
    case when m.shared_body_no is null then m.body else broker_private.shared_body(m.shared_body_no) end, 'UTF8'
  )
  into status
  from broker_private.messages m
  where m.group_no = e.group_no and m.queue_id = 3 and m.endpoint_no = e.endpoint_no
  order by m.urgency, m.id
  limit 1;
end
$$;

comment on function broker.read_status(uuid) is
$$What query_service's question was answered: a Status, or the Error by which it was refused.

conversation_handle: what broker.query_service returned.

Returns: XML as text: Status, Description or Error; NULL as long as nothing has come.
Rights: the owner of the conversation or of its service.
Locks: none.
Errors: 229, 8426
Example: select broker.read_status(broker.query_service('//shop/orders', '//shop/warehouse'));$$;
