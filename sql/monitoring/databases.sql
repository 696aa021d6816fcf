-- broker.databases: this database as a broker, as in sys.databases: one row.
create or replace view broker.databases as
select
  pg_catalog.current_database() as name,
  b.service_broker_guid,
  b.is_broker_enabled,
  b.is_broker_priority_honored
from broker_private.broker_instance b;
