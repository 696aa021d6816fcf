-- The whitepaper's objects, the same in every database.
select broker.create_message_type('//MySSB.com/Lab/M_Test', validation => 'NONE');
select broker.create_contract('//MySSB.com/Lab/C_Test', sent_by_any => array['//MySSB.com/Lab/M_Test']);
select broker.create_queue('MySSBLabTestQueue', status => true, retention => false);
select broker.create_service('//MySSB.com/Lab/S_Test', 'MySSBLabTestQueue', array['//MySSB.com/Lab/C_Test']);
create schema lab;
