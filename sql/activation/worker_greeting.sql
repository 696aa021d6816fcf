-- What a worker asks a database first.
--
-- The problem is why the broker is not enabled. Nothing is written, so a standby answers too:
-- is_in_recovery.
create or replace function broker_private.worker_greeting()
returns table (
  service_broker_guid uuid, has_xml_parser boolean, is_broker_enabled boolean, broker_problem text, is_in_recovery boolean,
  server_started_at timestamp with time zone
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select b.service_broker_guid, broker_private.is_well_formed_xml('<a/>') is not null, p.problem is null, p.problem,
    pg_is_in_recovery(), pg_postmaster_start_time()
  from broker_private.broker_instance b
  cross join (select broker_private.broker_problem() as problem) p;
end
$$;
