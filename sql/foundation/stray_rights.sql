-- The rights on objects of the broker that it did not give: on all, or on one relation.
--
-- Nothing may differ from given_rights, and a grant option is always one too many. But in schema
-- broker an operator may take from PUBLIC what it has, and give that to roles.
-- Without a privilege it is what somebody who lacks the owner's rights has there: an object, a
-- trigger that runs his code, a foreign key. The statement removes that.
-- Why: who owns a function of schema broker passes for any caller (is_entry). A trigger's code runs
-- as the owner, and outlives the right that made it.
create or replace function broker_private.stray_rights(only_relation regclass default null)
returns table (
  grantee oid, privilege text, is_option_only boolean, kind text, name text, owner oid, is_new boolean, statement text
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  broker_owner constant oid := (select n.nspowner from pg_namespace n where n.nspname = 'broker_private');
begin
  return query
  with given as materialized (
    select r.catalog, r.oid, r.privilege, r.grantee from broker_private.given_rights r
    where only_relation is null or r.catalog = 'pg_class'::regclass and r.oid = only_relation
  )
  select a.grantee, a.privilege_type || coalesce(' (' || quote_ident(o.column_name) || ')', ''), v.is_given, o.kind,
    (pg_identify_object(o.catalog, o.oid, 0)).identity, o.owner, o.is_new, null
  from broker_private.broker_objects o
  cross join aclexplode(coalesce(o.acl, o.default_acl)) a
  left join given r
    on r.catalog = o.catalog and r.oid = o.oid and r.privilege = a.privilege_type and r.grantee = a.grantee
  left join given p
    on p.catalog = o.catalog and p.oid = o.oid and p.privilege = a.privilege_type and p.grantee = 0 and o.schema = 'broker'
  cross join lateral (
    select num_nonnulls(r.oid, p.oid) > 0 or a.grantee = broker_owner as is_given
  ) v
  where (only_relation is null or o.catalog = 'pg_class'::regclass and o.oid = only_relation)
    and a.grantee <> o.owner
    and (not v.is_given or a.is_grantable or a.grantor <> o.owner);

  if only_relation is not null then
    return;
  end if;
  return query
  select f.role, null, false, f.kind, i.identity, f.role, false,
    case f.kind
      when 'schema' then format('alter schema %s owner to %s', i.identity, broker_owner::regrole)
      when 'foreign key' then (
        select format('alter table %s drop constraint %I', k.conrelid::regclass, k.conname) from pg_constraint k where k.oid = f.oid
      )
      else format('drop %s %s', i.type, i.identity)
    end
  from (
    select o.owner as role, o.kind, o.catalog, o.oid
    from broker_private.broker_objects o
    where o.column_name is null
    union all
    select p.proowner, 'trigger', 'pg_trigger', t.oid
    from pg_trigger t
    join pg_class c on c.oid = t.tgrelid
    join pg_proc p on p.oid = t.tgfoid
    where not t.tgisinternal and c.relnamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)
    union all
    select r.relowner, 'foreign key', 'pg_constraint', k.oid
    from pg_constraint k
    join pg_class c on c.oid = k.confrelid and c.relnamespace = 'broker_private'::regnamespace
    join pg_class r on r.oid = k.conrelid
    where k.contype = 'f'
    offset 0
  ) f
  cross join pg_identify_object(f.catalog, f.oid, 0) i
  where not pg_has_role(f.role, broker_owner, 'MEMBER');
end
$$;
