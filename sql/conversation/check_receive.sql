-- Every refusal of RECEIVE and GET CONVERSATION GROUP that does not depend on a message.
create or replace function broker_private.check_receive(
  role_name name, queue_name text, wanted bigint, handle uuid, group_id uuid, timeout interval
)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  queue broker_private.queues%rowtype;
begin
  if timeout <> interval '0' and not exists (select from broker_private.queues q where q.name = queue_name) then
    found := broker_private.refuse(
      208, format('The queue "%s" is not found: it was dropped while this session waited, or there was none.', coalesce(queue_name, 'NULL')),
      'Names are taken literally, capitals included; broker.service_queues lists them, broker.create_queue makes one.'
    );
  end if;
  queue := broker_private.find_queue(queue_name);
  perform broker_private.require_receive(role_name, queue.queue_id);
  if not queue.is_receive_enabled then
    found := broker_private.refuse(
      9617, format('The queue "%s" is disabled.', queue_name),
      format('Its owner enables it: SELECT broker.alter_queue(%L, status => true)', queue_name)
    );
  end if;
  if wanted < 0 then
    found := broker_private.refuse(153, format('top is %s.', wanted), 'Give a number of messages, or leave top out for all of the group.');
  end if;
  if handle is not null and group_id is not null then
    found := broker_private.refuse(
      153, 'conversation_handle and conversation_group_id are both given.', 'RECEIVE takes one of them: a conversation, or a whole group.'
    );
  end if;
  if timeout < interval '0' or timeout > make_interval(secs => 2147483647) then
    found := broker_private.refuse(
      153, format('The timeout %s is out of range.', timeout), 'Give an interval of 0 to 2147483647 seconds; NULL waits for ever.'
    );
  end if;
  if timeout is distinct from interval '0' and current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    found := broker_private.refuse(
      153, format('A wait in a transaction that is %s would never see a message arrive.', upper(current_setting('transaction_isolation'))),
      'Use READ COMMITTED, or timeout => ''0''.'
    );
  end if;
end
$$;
