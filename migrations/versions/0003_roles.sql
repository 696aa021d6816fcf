-- Who has a right is a role, not a name: a role that is renamed keeps its rights, and one that gets
-- the name of a dropped role has none of them. A row whose role is dropped stays, shows its bare
-- number, and gives no right to anybody.

-- Who may be granted a permission, or own a certificate: a role (0 is public), or a user that only
-- the broker knows.
create type broker_private.principal as (role regrole, broker_user name);

-- What other databases' queues, and the users' own views, depend on stays: each view is emptied,
-- and its file makes it again.
do $$
declare
  this record;
begin
  for this in
    select c.oid::regclass as name,
      string_agg(
        format(
          'null::%s%s as %I', format_type(a.atttypid, a.atttypmod),
          ' collate ' || nullif(a.attcollation, 0)::regcollation, a.attname
        ), ', ' order by a.attnum
      ) as columns
    from pg_catalog.pg_class c
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relkind = 'v' and c.relnamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)
    group by c.oid
  loop
    execute format('create or replace view %s as select %s where false', this.name, this.columns);
  end loop;
end
$$;
delete from broker_private.applied_sql;

-- Their arguments change.
drop function if exists broker_private.sides_of(uuid, uuid[], boolean[], uuid[], text[], text[], bytea[]);
drop function if exists broker_private.is_permitted(name, text, "char", integer, name);
drop function if exists broker_private.is_owner(name, name);
drop function if exists broker_private.role_of_owner(name);
drop function if exists broker_private.require_creation(name, text, text);
drop function if exists broker_private.require_ownership(name, name, text, text);
drop function if exists broker_private.activation_runner(name, text, text);
drop function if exists broker_private.set_queue_options(
  integer, boolean, boolean, text, integer, boolean, name, boolean, text, text, interval
);
drop function if exists broker_private.new_endpoint(
  uuid, uuid, boolean, bigint, integer, integer, integer, text, uuid, "char", bigint, timestamp with time zone, boolean, name
);

create function pg_temp.role_named(name) returns regrole
language sql stable
return pg_catalog.to_regrole(pg_catalog.quote_ident($1));

-- A name without a role was a broker user where one may be (permissions, certificates, bindings).
-- Nobody can tell it from a dropped role's name: so it is one from now on, and a role that gets
-- this name has nothing of it.
create function pg_temp.principal_named(name) returns broker_private.principal
language sql stable
return case
  when $1 = 'public' then row(0::oid, null)::broker_private.principal
  when pg_temp.role_named($1) is not null then row(pg_temp.role_named($1), null)::broker_private.principal
  else row(null, $1)::broker_private.principal
end;

-- Only a database role could receive, and use a contract or a schema collection: such a right of a
-- name without a role is nobody's.
do $$
declare
  this record;
begin
  for this in
    delete from broker_private.permissions p
    where p.permission in ('RECEIVE', 'REFERENCES') and p.grantee <> 'public' and pg_temp.role_named(p.grantee) is null
    returning p.grantee, p.permission
  loop
    raise notice 'There is no role "%": its permission % is dropped.', this.grantee, this.permission;
  end loop;
  for this in
    delete from broker_private.worker_roles w where pg_temp.role_named(w.role_name) is null
    returning w.role_name
  loop
    raise notice 'There is no role "%": it is no worker role any more.', this.role_name;
  end loop;
  for this in
    update broker_private.queues q set execute_as = null, is_activation_enabled = false
    from broker_private.queues o
    where o.queue_id = q.queue_id and pg_temp.role_named(o.execute_as) is null and o.execute_as is not null
    returning q.name, o.execute_as
  loop
    raise notice 'There is no role "%": the activation of the queue "%" is off.', this.execute_as, this.name;
  end loop;
  for this in
    select x.kind, x.name, x.owner
    from (
      select 'message type' as kind, t.name, t.owner from broker_private.message_types t
      union all select 'contract', coalesce(c.name, c.dropped_name), c.owner from broker_private.contracts c
      union all select 'schema collection', c.name, c.owner from broker_private.schema_collections c
      union all select 'queue', q.name, q.owner from broker_private.queues q
      union all select 'service', coalesce(s.name, s.dropped_name), s.owner from broker_private.services s
      union all select 'route', r.name, r.owner from broker_private.routes r
      union all select 'remote service binding', b.name, b.owner from broker_private.remote_service_bindings b
      union all select 'event notification', n.name, n.owner from broker_private.event_notifications n
      union all select 'endpoint', t.name, t.owner from broker_private.tcp_endpoint t
    ) x
    where pg_temp.role_named(x.owner) is null
  loop
    raise notice 'There is no role "%": the % "%" belongs to the owner of the database now.', this.owner, this.kind, this.name;
  end loop;
end
$$;

-- A table with a default, or without: the owner of what nobody owns is the database's.
do $$
declare
  table_name text;
begin
  foreach table_name in array array['schema_collections', 'message_types', 'contracts', 'routes'] loop
    execute format('alter table broker_private.%I alter column owner drop default', table_name);
  end loop;
  foreach table_name in array array[
    'schema_collections', 'message_types', 'contracts', 'queues', 'services', 'event_notifications', 'routes',
    'remote_service_bindings', 'tcp_endpoint', 'endpoints'
  ] loop
    execute format(
      'alter table broker_private.%I alter column owner type regrole'
      ' using coalesce(pg_temp.role_named(owner), to_regrole(''pg_database_owner''))', table_name
    );
  end loop;
  foreach table_name in array array['schema_collections', 'message_types', 'contracts', 'routes'] loop
    execute format(
      'alter table broker_private.%I alter column owner set default to_regrole(''pg_database_owner'')', table_name
    );
  end loop;
end
$$;
alter table broker_private.queues alter column execute_as type regrole using pg_temp.role_named(execute_as);
alter table broker_private.worker_roles alter column role_name type regrole using pg_temp.role_named(role_name);

alter table broker_private.permissions
  alter column grantee type broker_private.principal using pg_temp.principal_named(grantee),
  add check (num_nonnulls((grantee).role, (grantee).broker_user) = 1);
alter table broker_private.certificates
  alter column user_name type broker_private.principal using pg_temp.principal_named(user_name),
  add check (num_nonnulls((user_name).role, (user_name).broker_user) = 1);
alter table broker_private.remote_service_bindings
  alter column user_name type broker_private.principal using pg_temp.principal_named(user_name),
  add check (num_nonnulls((user_name).role, (user_name).broker_user) = 1);
alter table broker_private.dialog_security
  alter column far_user type broker_private.principal
    using case when far_user is not null then pg_temp.principal_named(far_user) end;
drop function pg_temp.principal_named(name);
drop function pg_temp.role_named(name);
