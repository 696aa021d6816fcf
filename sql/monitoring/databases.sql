-- This database as a broker, as in sys.databases: one row.
--
-- Ours: why the broker is disabled, if it is.
create or replace view broker.databases as
select
  pg_catalog.current_database() as name,
  b.service_broker_guid,
  p.problem is null as is_broker_enabled,
  b.is_broker_priority_honored,
  p.problem as disabled_reason
from broker_private.broker_instance b
cross join (select broker_private.broker_problem() as problem) p;

comment on view broker.databases is
'This database as a broker, one row, as in sys.databases.';
comment on column broker.databases.name is 'of the database';
comment on column broker.databases.service_broker_guid is 'the broker instance: what a route names, and NEW_BROKER changes';
comment on column broker.databases.is_broker_enabled is 'whether messages arrive and leave';
comment on column broker.databases.is_broker_priority_honored is 'whether messages to other brokers leave by their priority';
comment on column broker.databases.disabled_reason is 'why the broker is off; NULL if it is on. Ours';
