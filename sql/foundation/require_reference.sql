-- Refuses a role without REFERENCES on the contract.
--
-- Everybody may refer to the contracts that come with the broker.
create or replace function broker_private.require_reference(role_name name, contract integer)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this broker_private.contracts%rowtype;
begin
  select c.* into this from broker_private.contracts c where c.contract_id = contract;
  if contract >= 65536 and not broker_private.is_permitted(role_name, 'REFERENCES', '<contract>', contract, this.owner) then
    found := broker_private.refuse(
      229, format('Role "%s" may not use the contract "%s".', role_name, this.name),
      format('Let its owner, "%s", run: SELECT broker.grant(''REFERENCES'', ''CONTRACT'', %L, %L)', pg_get_userbyid(this.owner), this.name, role_name)
    );
  end if;
end
$$;
