-- The message types that the reader of a view may know of.
--
-- They are the system's, its own, those that it has REFERENCES on, and those of contracts that it
-- may know of.
create or replace view broker_private.visible_message_types with (security_barrier) as
select t.message_type_id
from broker_private.message_types t
where t.message_type_id < 65536
  or exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, t.owner, 'USAGE')
  or exists (
    -- What public has, as from the beginning, says nothing of this reader.
    select from broker_private.permissions p
    where p.class = '<message type>' and p.securable_id = t.message_type_id and (p.grantee).role <> 0
      and pg_catalog.pg_has_role(current_user, (p.grantee).role, 'USAGE')
  )
  or exists (
    select from broker_private.contract_messages m
    join broker_private.visible_contracts c on c.contract_id = m.contract_id
    where m.message_type_id = t.message_type_id
  );
