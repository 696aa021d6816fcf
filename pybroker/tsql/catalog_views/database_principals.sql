-- sys.database_principals: roles, and the users that only the broker knows.
select
  r.rolname as name, r.oid::bigint as principal_id, case when r.rolcanlogin then 'S' else 'R' end as type,
  case when r.rolcanlogin then 'SQL_USER' else 'DATABASE_ROLE' end as type_desc,
  'dbo'::name as default_schema_name, false as is_fixed_role
from pg_catalog.pg_roles r
where r.rolname not like 'pg\_%'
union all
select p.name, null, 'S', 'SQL_USER', null, false
from (
  select c.principal_id as name from broker.certificates c
  union
  select b.remote_principal_id from broker.remote_service_bindings b
  union
  select g.grantee_principal_id from broker.database_permissions g
) p
where p.name <> 'public' and not exists (select from pg_catalog.pg_roles r where r.rolname = p.name)
