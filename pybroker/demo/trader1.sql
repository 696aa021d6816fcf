-- Trader1: enters orders, and records what the brokerage acknowledges.

-- What travels is written into XML by hand (see enter_order), so the checks admit nothing that XML would have to escape.
create table public.orders (
  order_id text primary key check (order_id ~ '^[A-Za-z0-9]+$'),
  symbol text not null check (symbol ~ '^[A-Z]+$'),
  shares integer not null check (shares > 0),
  price numeric(12, 2) not null check (price > 0),
  amount numeric(20, 2) not null generated always as (shares * price) stored,
  conversation_handle uuid not null
);

-- No key on the order: an order that were acknowledged twice must show in the reconciliation, not fail here.
create table public.acknowledgements (
  acknowledgement_no bigint primary key generated always as identity,
  order_id text not null,
  ack_id bigint not null,
  amount numeric(20, 2) not null
);

-- Conversations that ended with an Error message.
create table public.failures (
  failure_no bigint primary key generated always as identity,
  conversation_handle uuid not null,
  body text not null
);

-- Listing 15-19: the service program behind tradeAckQueue.
-- The worker CALLs it outside a transaction, so it commits and rolls back by itself as the book's does. A procedure that
-- commits cannot have a SET clause, search_path included: every name is qualified.
create procedure public.tradeAckProc()
language plpgsql
as $$
declare
  conversation_group uuid;
  message broker.message;
  body text;
begin
  loop
    conversation_group := broker.get_conversation_group('tradeAckQueue', timeout => '500 ms');
    if conversation_group is null then
      rollback;
      exit;
    end if;

    select r.* into message
    from broker.receive('tradeAckQueue', top => 1, conversation_group_id => conversation_group) r;

    if message.message_type_name = '//www.develop.com/DMBrokerage/TradeAck' then
      body := convert_from(message.message_body, 'UTF8');
      insert into public.acknowledgements (order_id, ack_id, amount)
      values (
        substring(body from '<id>([^<]+)</id>'),
        substring(body from '<ackid>([^<]+)</ackid>')::bigint,
        substring(body from '<amount>([^<]+)</amount>')::numeric
      );
    elsif message.message_type_name = 'http://schemas.microsoft.com/SQL/ServiceBroker/Error' then
      insert into public.failures (conversation_handle, body)
      values (message.conversation_handle, convert_from(message.message_body, 'UTF8'));
    end if;
    -- The acknowledgement is all that a trader waits for. After an EndDialog or an Error too, this side must be ended.
    perform broker.end_conversation(message.conversation_handle);

    commit;
  end loop;
end
$$;

-- Listing 15-8: the queue. Its procedure exists already, so the book's empty shell is not needed.
select broker.create_queue(
  'tradeAckQueue',
  status => true,
  activation_procedure => 'tradeAckProc',
  max_queue_readers => 5,
  execute_as => 'SELF'
);

-- Listing 15-10: the service.
select broker.create_service(
  'enterTrade', 'tradeAckQueue', contracts => array['//www.develop.com/DMBrokerage/EnterTrade']
);

-- Dialogs to the brokerage's service are encrypted for the user DMBrokerage, whose certificate transport.sql registers.
select broker.create_remote_service_binding(
  'TradeEntryBinding',
  to_service => '//www.develop.com/DMBrokerage/TradeEntryService',
  user_name => 'DMBrokerage'
);

-- Listings 15-12 and 15-14: begin a dialog and send the order. The order and its message commit together or not at all.
create function public.enter_order(order_id text, symbol text, shares integer, price numeric)
returns uuid
language plpgsql
as $$
declare
  dialog uuid;
begin
  dialog := broker.begin_dialog(
    from_service => 'enterTrade',
    to_service => '//www.develop.com/DMBrokerage/TradeEntryService',
    contract => '//www.develop.com/DMBrokerage/EnterTrade'
  );
  insert into public.orders (order_id, symbol, shares, price, conversation_handle)
  values (order_id, symbol, shares, price, dialog);
  perform broker.send(
    dialog,
    '//www.develop.com/DMBrokerage/TradeEntry',
    format(
      '<order><id>%s</id><symbol>%s</symbol><shares>%s</shares><price>%s</price></order>', order_id, symbol, shares, price
    )
  );
  return dialog;
end
$$;

-- What the demo's table shows of this side. An initiator's endpoint is gone from the view when the conversation is over.
create view public.progress as
select
  (select count(*) from public.orders) as sent,
  (select count(*) from broker.transmission_queue) as in_transmission,
  (select count(*) from public.acknowledgements) as acknowledged,
  (select count(*) from public.failures) as failed,
  (select count(*) from broker.conversation_endpoints) as open_conversations;
