-- Every object of the two schemas that has an ACL, and what GRANT calls its kind.
-- Why: acl is null where nobody has ever granted or revoked; default_acl counts there. A column has
-- an ACL only if somebody made it. known_as: what given_rights may call a routine. is_new: this
-- transaction made or changed it. pg_identify_object has the names, which for all cost more than
-- the rest.
create or replace view broker_private.broker_objects as
with schemas as (
  select n.oid, n.nspname, n.nspowner, n.nspacl
  from pg_catalog.pg_namespace n
  where n.nspname in ('broker', 'broker_private')
)
select s.nspname as schema, 'pg_namespace'::pg_catalog.regclass as catalog, s.oid, 'schema' as kind,
  null::text[] as known_as, null::name as column_name, s.nspowner as owner, s.nspacl as acl,
  pg_catalog.acldefault('n', s.nspowner) as default_acl, false as is_new
from schemas s
union all
select s.nspname, 'pg_class', c.oid, case c.relkind when 'S' then 'sequence' else 'table' end, null, null,
  c.relowner, c.relacl, pg_catalog.acldefault((case c.relkind when 'S' then 's' else 'r' end)::"char", c.relowner), false
from schemas s
join pg_catalog.pg_class c on c.relnamespace = s.oid and c.relkind in ('r', 'v', 'S', 'm', 'f', 'p')
union all
select s.nspname, 'pg_class', c.oid, 'table', null, a.attname, c.relowner, a.attacl, null, false
from schemas s
join pg_catalog.pg_class c on c.relnamespace = s.oid
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attacl is not null
union all
select s.nspname, 'pg_proc', p.oid, 'routine',
  array[
    p.proname,
    case
      when not p.prosecdef then null
      when p.proargnames[1] = 'caller' then 'those that check their caller'
      else 'the other definers'
    end
  ],
  null, p.proowner, p.proacl, pg_catalog.acldefault('f', p.proowner),
  coalesce(p.xmin = pg_catalog.pg_current_xact_id_if_assigned()::xid, false)
from schemas s
join pg_catalog.pg_proc p on p.pronamespace = s.oid
union all
-- Not the types of tables' rows and of arrays, which are made for themselves.
select s.nspname, 'pg_type', t.oid, 'type', null, null, t.typowner, t.typacl,
  pg_catalog.acldefault('T', t.typowner), false
from schemas s
join pg_catalog.pg_type t on t.typnamespace = s.oid and t.typcategory <> 'A' and t.typtype <> 'm'
left join pg_catalog.pg_class c on c.oid = t.typrelid
where c.relkind is null or c.relkind = 'c';
