-- The contracts, as sys.service_contracts.
create or replace view broker.service_contracts with (security_barrier) as
select c.name, c.contract_id as service_contract_id, pg_catalog.pg_get_userbyid(c.owner) as principal_id
from broker_private.contracts c
where c.name is not null
  and exists (select from broker_private.visible_contracts v where v.contract_id = c.contract_id);

comment on view broker.service_contracts is
'The contracts, as sys.service_contracts.';
comment on column broker.service_contracts.name is 'as create_contract was told';
comment on column broker.service_contracts.service_contract_id is 'what conversations refer to';
comment on column broker.service_contracts.principal_id is 'the role that owns it';
