-- The address with its scheme in small letters, LOCAL and TRANSPORT in capitals.
--
-- TCP:// is what Service Broker prints.
create or replace function broker_private.canonical_address(address text)
returns text
language sql immutable
begin atomic
  select case
    when pg_catalog.lower(address) in ('local', 'transport') then pg_catalog.upper(address)
    when pg_catalog.lower(pg_catalog.left(address, 6)) = 'tcp://' then 'tcp://' || pg_catalog.substr(address, 7)
    else address
  end;
end;
