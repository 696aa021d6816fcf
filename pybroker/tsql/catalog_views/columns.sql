-- sys.columns: of tables and views. What PostgreSQL has other types for is left out.
select
  a.attrelid::bigint as object_id, a.attname as name, a.attnum::integer as column_id,
  not a.attnotnull as is_nullable, a.attidentity <> '' as is_identity, a.attgenerated <> '' as is_computed
from pg_catalog.pg_attribute a
join pg_catalog.pg_class c on c.oid = a.attrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p', 'v') and n.nspname not like 'pg\_%'
  and n.nspname not in ('information_schema', 'broker', 'broker_private')
