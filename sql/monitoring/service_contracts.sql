-- broker.service_contracts: the contracts, as sys.service_contracts.
create or replace view broker.service_contracts as
select c.name, c.contract_id as service_contract_id, pg_catalog.pg_get_userbyid(c.owner) as principal_id
from broker_private.contracts c
where c.name is not null;
