-- sys.schemas: the schemas but those of the system.
select n.nspname as name, n.oid::bigint as schema_id, n.nspowner::bigint as principal_id
from pg_catalog.pg_namespace n
where n.nspname not like 'pg\_%' and n.nspname not in ('information_schema', 'broker', 'broker_private')
