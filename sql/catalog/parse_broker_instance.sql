-- The guid of a broker instance: null, a guid as text, or 'CURRENT DATABASE'.
-- Errors: 8413 not a guid.
create or replace function broker_private.parse_broker_instance(instance text)
returns uuid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if instance = 'CURRENT DATABASE' then
    return (select b.service_broker_guid from broker_private.broker_instance b where b.is_the_only_row);
  end if;
  if instance !~* E'^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\\{[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\\})$' then
    found := broker_private.refuse(
      8413, format('"%s" is not a broker instance.', left(instance, 64)),
      'Give the service_broker_guid of the target database, as its view broker.databases shows it, or ''CURRENT DATABASE''.'
    );
  end if;
  return instance::uuid;
end
$$;
