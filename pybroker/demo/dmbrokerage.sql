-- DMBrokerage: books trades, and acknowledges them.

-- No key on the order: an order that were booked twice must show in the reconciliation, not fail here.
create table public.trades (
  trade_no bigint primary key generated always as identity,
  order_id text not null,
  symbol text not null,
  shares integer not null,
  price numeric(12, 2) not null,
  amount numeric(20, 2) not null generated always as (shares * price) stored
);

-- Conversations that ended with an Error message.
create table public.failures (
  failure_no bigint primary key generated always as identity,
  conversation_handle uuid not null,
  body text not null
);

-- Listing 15-18, with the receive of listings 15-15 to 15-17: the service program behind tradeEntryQueue.
-- The worker CALLs it outside a transaction, so it commits and rolls back by itself as the book's does. A procedure that
-- commits cannot have a SET clause, search_path included: every name is qualified.
create procedure public.tradeEntryProc()
language plpgsql
as $$
declare
  conversation_group uuid;
  message broker.message;
  body text;
  trade public.trades;
  acknowledgement text;
begin
  loop
    -- 1. A transaction begins by itself, with the procedure and after each COMMIT and ROLLBACK.
    -- 2. Lock the conversation group.
    conversation_group := broker.get_conversation_group('tradeEntryQueue', timeout => '500 ms');
    if conversation_group is null then
      rollback;
      exit;
    end if;

    -- 3. An order has no state from one message to the next.
    -- 4. Receive.
    select r.* into message
    from broker.receive('tradeEntryQueue', top => 1, conversation_group_id => conversation_group) r;

    if message.message_type_name = '//www.develop.com/DMBrokerage/TradeEntry' then
      -- 5. Book the trade. That the XML is well-formed was checked before it was delivered. The fields are cut out as text:
      -- the type xml and its functions need a PostgreSQL with libxml, which the embedded server does not have.
      body := convert_from(message.message_body, 'UTF8');
      trade.order_id := substring(body from '<id>([^<]+)</id>');
      trade.symbol := substring(body from '<symbol>([^<]+)</symbol>');
      trade.shares := substring(body from '<shares>([0-9]+)</shares>');
      trade.price := substring(body from '<price>([0-9.]+)</price>');
      if trade.order_id is null or trade.symbol is null or trade.shares is null or trade.price is null then
        perform broker.end_conversation(
          message.conversation_handle,
          error_code => 1,
          error_description => 'An order needs id, symbol, shares and price.'
        );
      else
        insert into public.trades (order_id, symbol, shares, price)
        values (trade.order_id, trade.symbol, trade.shares, trade.price)
        returning * into trade;
        -- 6. Answer.
        acknowledgement := format(
          '<ack><id>%s</id><ackid>%s</ackid><amount>%s</amount></ack>', trade.order_id, trade.trade_no, trade.amount
        );
        perform broker.send(
          message.conversation_handle, '//www.develop.com/DMBrokerage/TradeAck', acknowledgement
        );
        -- 7. One order, one conversation: this side has no more to say.
        perform broker.end_conversation(message.conversation_handle);
      end if;
    else
      if message.message_type_name = 'http://schemas.microsoft.com/SQL/ServiceBroker/Error' then
        insert into public.failures (conversation_handle, body)
        values (message.conversation_handle, convert_from(message.message_body, 'UTF8'));
      end if;
      -- EndDialog or Error: the trader has ended its side, and this side must be ended too.
      perform broker.end_conversation(message.conversation_handle);
    end if;

    -- 8. Nor is there state to update.
    -- 9. Commit: the message is gone from the queue, the trade is booked and the answer is on its way, or none of it.
    commit;
  end loop;
end
$$;

-- Listing 15-8: the queue. Its procedure exists already, so the book's empty shell is not needed.
select broker.create_queue(
  'tradeEntryQueue',
  status => true,
  activation_procedure => 'tradeEntryProc',
  max_queue_readers => 5,
  execute_as => 'SELF'
);

-- Listing 15-10: the service.
select broker.create_service(
  '//www.develop.com/DMBrokerage/TradeEntryService',
  'tradeEntryQueue',
  contracts => array['//www.develop.com/DMBrokerage/EnterTrade']
);

-- Who proves with the trader's certificate that he is Trader1 may begin dialogs, and nobody else.
select broker.grant('SEND', 'SERVICE', '//www.develop.com/DMBrokerage/TradeEntryService', 'Trader1');

-- What the demo's table shows of this side. A target's endpoint stays CLOSED for half an hour after its conversation is over,
-- so that a message that is sent again opens no second one: with the open ones it counts the orders delivered.
create view public.progress as
select
  (select count(*) from broker.transmission_queue) as in_transmission,
  e.delivered,
  (select count(*) from public.trades) as booked,
  (select count(*) from public.failures) as failed,
  e.open_conversations
from (
  select count(*) as delivered, count(*) filter (where state <> 'CD') as open_conversations
  from broker.conversation_endpoints
) e;
