-- The whitepaper's objects, the same in every database. Type and contract may be there from an earlier test: conversations that
-- have ended need them for half an hour.
select broker.create_message_type('//MySSB.com/Lab/M_Test', validation => 'NONE')
where not exists (select from broker.service_message_types where name = '//MySSB.com/Lab/M_Test');
select broker.create_contract('//MySSB.com/Lab/C_Test', sent_by_any => array['//MySSB.com/Lab/M_Test'])
where not exists (select from broker.service_contracts where name = '//MySSB.com/Lab/C_Test');
select broker.create_queue('MySSBLabTestQueue', status => true, retention => false);
select broker.create_service('//MySSB.com/Lab/S_Test', 'MySSBLabTestQueue', array['//MySSB.com/Lab/C_Test']);
create schema lab;
