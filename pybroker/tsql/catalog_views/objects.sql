-- sys.objects: what has a name in a schema; the views that show queues are left out.
select
  c.relname as name, c.oid::bigint as object_id, null::bigint as principal_id, c.relnamespace::bigint as schema_id,
  0::bigint as parent_object_id, case c.relkind when 'v' then 'V' else 'U' end as type,
  case c.relkind when 'v' then 'VIEW' else 'USER_TABLE' end as type_desc,
  null::timestamp as create_date, null::timestamp as modify_date, false as is_ms_shipped
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v') and n.nspname not like 'pg\_%'
  and n.nspname not in ('information_schema', 'broker', 'broker_private')
  and not exists (
    select from broker.service_queues q where q.name = c.relname and q.schema_id = n.nspname
  )
union all
select
  p.proname, p.oid::bigint, null, p.pronamespace::bigint, 0,
  case when p.prokind = 'p' then 'P' when p.prorettype = 'trigger'::regtype then 'TR' when p.proretset then 'TF' else 'FN' end,
  case
    when p.prokind = 'p' then 'SQL_STORED_PROCEDURE'
    when p.prorettype = 'trigger'::regtype then 'SQL_TRIGGER'
    when p.proretset then 'SQL_TABLE_VALUED_FUNCTION'
    else 'SQL_SCALAR_FUNCTION'
  end,
  null, null, false
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname not like 'pg\_%' and n.nspname not in ('information_schema', 'broker', 'broker_private')
union all
select
  q.name, q.object_id, null, n.oid::bigint, 0, 'SQ', 'SERVICE_QUEUE',
  q.create_date::timestamp(3), q.modify_date::timestamp(3), false
from broker.service_queues q
left join pg_catalog.pg_namespace n on n.nspname = q.schema_id
union all
select 'sysxmitqueue', 68, null, null, 0, 'S', 'SYSTEM_TABLE', null, null, true
