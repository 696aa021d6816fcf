-- Whether the broker is on, and its row was written here.
--
-- Inlined. False may be wrong, where rights to ask for the server changed: broker_problem is exact.
create or replace function broker_private.is_surely_on(broker broker_private.broker_instance)
returns boolean
language sql stable
begin atomic
  select broker.is_broker_enabled
    and broker.database_oid || coalesce(' ' || broker.system_identifier, '') = broker_private.here();
end;
