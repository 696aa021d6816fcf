-- The contracts that the reader of a view may know of.
--
-- They are the system's, its own, those that it has REFERENCES on, and those of services that it
-- may know of.
create or replace view broker_private.visible_contracts with (security_barrier) as
select c.contract_id
from broker_private.contracts c
where c.contract_id < 65536
  or exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, c.owner, 'USAGE')
  or exists (
    select from broker_private.granted_objects g where g.class = '<contract>' and g.securable_id = c.contract_id
  )
  or exists (
    select from broker_private.service_contracts a
    join broker_private.visible_services s on s.service_id = a.service_id
    where a.contract_id = c.contract_id
  );
