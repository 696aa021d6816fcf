-- SEND of any number of messages in every case, and every refusal.
--
-- With the number of a shared body that is the content, which is one then, and stays there. It
-- returns true: a call by RETURN is one line of an error's CONTEXT, one by PERFORM two.
-- Locks: the group's row.
create or replace function broker_private.send_slowly(
  caller name, handle uuid, type_name text, contents bytea[], shared_no bigint default null
)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  e broker_private.endpoints%rowtype;
  this record;
  state text;
  is_too_large boolean := octet_length(contents[1]) > broker_private.largest_body();
  is_checked boolean;
begin
  e := broker_private.lock_group_of(handle, caller);
  select
    q.owner, q.is_retention_enabled, c as sendable, c.message_type_id, c.is_sent_by_initiator, c.is_sent_by_target, c.validation,
    e.local_end is null and not exists (
      select from broker_private.far_events v where v.endpoint_no = e.endpoint_no and v.event in ('<far end>', '<far error>')
    ) as is_open
  into this
  from broker_private.queues q
  left join broker_private.contract_messages c on c.contract_id = e.contract_id and c.message_type_name = type_name
  where q.queue_id = e.queue_id;
  if not broker_private.is_owner(caller, this.owner) then
    perform broker_private.require_receive(caller, e.queue_id);
  end if;
  if not this.is_open then
    state := (select s.state from broker_private.endpoint_states s where s.endpoint_no = e.endpoint_no);
    found := broker_private.refuse(
      8429, format('The conversation endpoint "%s" is in state %s and cannot send.', handle, state),
      case state
        when 'ER' then 'An Error message arrived: receive what is left, then end the conversation.'
        when 'DI' then 'The far side ended the conversation: receive what is left, then end it here too.'
        else 'This side ended the conversation: begin another one.'
      end
    );
  elsif e.expires_at <= broker_private.clock() then
    found := broker_private.refuse(
      8429, format('The lifetime of conversation "%s" ended at %s: its endpoint cannot send.', handle, e.expires_at),
      'An Error message, -8489, comes for both sides: receive what is left, end the conversation, and begin another one.'
    );
  end if;

  if this.message_type_id is null then
    found := (broker_private.find_message_type(type_name)).message_type_id is not null;
    found := broker_private.refuse(
      8431, format('The message type "%s" is not part of the service contract of conversation "%s".', type_name, handle),
      'broker.service_contract_message_usages lists the types of each contract.'
    );
  elsif e.is_initiator and not this.is_sent_by_initiator then
    found := broker_private.refuse(
      8432, format('The message type "%s" is sent by the target of a conversation, and "%s" is the initiator''s side.', type_name, handle),
      'Send a type that the contract lets the initiator send.'
    );
  elsif not e.is_initiator and not this.is_sent_by_target then
    found := broker_private.refuse(
      8434, format('The message type "%s" is sent by the initiator of a conversation, and "%s" is the target''s side.', type_name, handle),
      'Send a type that the contract lets the target send.'
    );
  end if;
  if array_position(contents, null) is not null then
    found := broker_private.refuse(
      8433, 'The message body is NULL.', 'For a message without a body leave the body out, or give ''''.'
    );
  end if;
  if cardinality(contents) > 1 then
    is_too_large := exists (select from unnest(contents) as c (content) where octet_length(c.content) > broker_private.largest_body());
  end if;
  if is_too_large then
    found := broker_private.refuse(
      8459, format('The message is larger than %s bytes, which is the most that a message has.', broker_private.largest_body()),
      'Send it in pieces: the messages of a conversation arrive in their order.'
    );
  end if;
  is_checked := this.validation = '<no validation>' or broker_private.are_valid(this.sendable, contents);
  if this.is_retention_enabled then
    perform broker_private.retain_sent(e, this.message_type_id, contents, shared_no);
  end if;
  found := broker_private.place_messages(e, this.message_type_id, contents, is_checked, shared_no);
  -- Most conversations have one message: the plan comes with the second.
  if found and e.path <> '<unsent>' then
    perform broker_private.refresh_plan(e.endpoint_no, caller);
  end if;
  return true;
end
$$;
