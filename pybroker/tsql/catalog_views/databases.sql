-- sys.databases: the databases that a session of `pybroker tsql` names; in a procedure this one alone.
select
  d.name, d.database_id, d.service_broker_guid, d.is_broker_enabled, d.is_broker_priority_honored,
  d.is_broker_priority_honored as is_honor_broker_priority_on,
  null::timestamp as create_date, 'ONLINE' as state_desc, 0 as state, false as is_trustworthy_on
from pg_catalog.jsonb_to_recordset(
  coalesce(nullif(pg_catalog.current_setting('pybroker_tsql.databases', true), ''), '[]')::jsonb
) d (name text, database_id integer, service_broker_guid uuid, is_broker_enabled boolean, is_broker_priority_honored boolean)
union all
select b.name, 5, b.service_broker_guid, b.is_broker_enabled, b.is_broker_priority_honored,
  b.is_broker_priority_honored, null, 'ONLINE', 0, false
from broker.databases b
where coalesce(pg_catalog.current_setting('pybroker_tsql.databases', true), '') = ''
