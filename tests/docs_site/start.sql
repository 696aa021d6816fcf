select broker.create_message_type('//shop/order', 'VALID_JSON');
select broker.create_message_type('//shop/ack');
select broker.create_contract('//shop/ordering', sent_by_initiator => '{//shop/order}', sent_by_target => '{//shop/ack}');
select broker.create_queue('orders');
select broker.create_queue('warehouse');
select broker.create_service('//shop/orders', 'orders');
select broker.create_service('//shop/warehouse', 'warehouse', '{//shop/ordering}');
select broker.begin_dialog('//shop/orders', '//shop/warehouse', '//shop/ordering') as handle \gset
\set pem `cat far-worker.pem`
