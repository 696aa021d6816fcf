-- What both databases of the stock-trading application have in common: both sides of a conversation must agree on it.

-- Listing 15-2: the message types.
-- The server checks XML itself only where PostgreSQL has libxml; elsewhere the worker does before it delivers.
select broker.create_message_type('//www.develop.com/DMBrokerage/TradeEntry', validation => 'WELL_FORMED_XML');
select broker.create_message_type('//www.develop.com/DMBrokerage/TradeAck', validation => 'WELL_FORMED_XML');

-- Listing 15-6: the contract. The book shows it for the trader; the brokerage needs the same.
select broker.create_contract(
  '//www.develop.com/DMBrokerage/EnterTrade',
  sent_by_initiator => array['//www.develop.com/DMBrokerage/TradeEntry'],
  sent_by_target => array['//www.develop.com/DMBrokerage/TradeAck']
);
