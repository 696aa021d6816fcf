-- Sends a Status of the endpoint's service.
--
-- What a Query may name is told by the Description that one gets which can't be understood. A
-- Status says what a sender learns anyway by sending: whether the queue takes messages, and whether
-- the service takes the contract. The broker on a conversation's other side is also told its state,
-- and how many messages have arrived in order.
-- Locks: the group's row.
create or replace function broker_private.answer_query(e broker_private.endpoints, query bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  asked text;
  contract text;
  conversation text;
  queue broker_private.queues%rowtype;
  f broker_private.endpoints%rowtype;
  status text;
begin
  begin
    asked := case when octet_length(query) <= 8000 then convert_from(query, 'UTF8') end;
  exception
    -- The database's encoding lacks a letter.
    when character_not_in_repertoire or untranslatable_character then
      asked := null;
  end;
  contract := broker_private.text_of_element(asked, 'Contract');
  conversation := broker_private.text_of_element(asked, 'Conversation');
  if (asked ~ E'<Query[\\s/>]') is not true then
    perform broker_private.send_system_message(
      e.conversation_handle, 13, convert_to(
        'A Query has 8000 bytes at most, and names none, one or both: '
          '<Query><Contract>name</Contract><Conversation>conversation_id</Conversation></Query>',
        'UTF8'
      )
    );
    return;
  end if;
  select q.* into queue
  from broker_private.services s
  join broker_private.queues q on q.queue_id = s.queue_id
  where s.service_id = e.service_id;
  status := '<Service>' || broker_private.xml_text(e.service_name) || '</Service><QueueAcceptsMessages>'
    || (queue.is_enqueue_enabled and not broker_private.is_poisoned(queue.queue_id))::text || '</QueueAcceptsMessages>';
  if contract is not null then
    status := status || '<ContractAccepted>' || exists (
      select from broker_private.service_contracts a
      join broker_private.contracts c on c.contract_id = a.contract_id
      where a.service_id = e.service_id and c.name = contract
    )::text || '</ContractAccepted>';
  end if;
  if conversation is not null then
    select x.* into f
    from broker_private.endpoints x
    where x.conversation_id = case
        when conversation ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then conversation::uuid
      end
      and not x.is_initiator
      and x.service_id = e.service_id and x.far_broker_instance = e.far_broker_instance;
    status := status || '<ConversationState>' || coalesce(
      (select s.state from broker_private.endpoint_states s where s.endpoint_no = f.endpoint_no), 'unknown'
    ) || '</ConversationState>';
    if f.path = '<remote>' then
      status := status || '<ArrivedInOrder>' || (
        select max(n.next_number) from broker_private.sequence_counters n
        where n.endpoint_no = f.endpoint_no and n.kind = '<next expected>'
      )::text || '</ArrivedInOrder>';
    end if;
  end if;
  perform broker_private.send_system_message(
    e.conversation_handle, 12, convert_to('<Status>' || status || '</Status>', 'UTF8')
  );
end
$$;
