-- broker.databases: this database as a broker, as in sys.databases: one row. Ours: why the broker
-- is disabled, if it is.
create or replace view broker.databases as
select
  pg_catalog.current_database() as name,
  b.service_broker_guid,
  p.problem is null as is_broker_enabled,
  b.is_broker_priority_honored,
  p.problem as disabled_reason
from broker_private.broker_instance b
cross join (select broker_private.broker_problem() as problem) p;
