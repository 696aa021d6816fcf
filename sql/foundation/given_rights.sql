-- Which of PostgreSQL's rights the broker gives on its objects, and to whom.
--
-- Everybody uses schema broker, nobody reaches a table, worker roles run the worker's functions.
-- A row for each object, right and role; role 0 is PUBLIC.
-- Why: the functions behind those of schema broker take the caller as their first argument and
-- check it themselves (is_seen). So everybody may execute them.
create or replace view broker_private.given_rights as
with rules (schema, kind, privilege, name, grantee) as (
  values
    ('broker', 'schema', 'USAGE', null, 'public'),
    ('broker', 'routine', 'EXECUTE', null, 'public'),
    ('broker', 'table', 'SELECT', null, 'public'),
    ('broker', 'type', 'USAGE', null, 'public'),
    ('broker_private', 'schema', 'USAGE', null, 'public'),
    ('broker_private', 'schema', 'USAGE', null, 'workers'),
    ('broker_private', 'type', 'USAGE', null, 'public'),
    ('broker_private', 'routine', 'EXECUTE', 'those that check their caller', 'public'),
    ('broker_private', 'routine', 'EXECUTE', 'the other definers', 'workers'),
    -- Public functions refuse for themselves what only they can see.
    ('broker_private', 'routine', 'EXECUTE', 'refuse', 'public'),
    -- The views ask these with their reader's rights.
    ('broker_private', 'routine', 'EXECUTE', 'broker_problem', 'public'),
    ('broker_private', 'routine', 'EXECUTE', 'message_id', 'public'),
    ('broker_private', 'routine', 'EXECUTE', 'is_poisoned', 'public'),
    ('broker_private', 'routine', 'EXECUTE', 'held_status', 'public'),
    ('broker_private', 'routine', 'EXECUTE', 'clock', 'public'),
    -- A reader's session that logged in as the queue's role says with its rights whether it received.
    ('broker_private', 'routine', 'EXECUTE', 'received_mark', 'public')
),
roles (name, role) as (
  select 'public', 0::oid
  union all
  select 'workers', r.oid
  from broker_private.worker_roles w
  join pg_catalog.pg_roles r on r.oid = w.role_name
)
select o.catalog, o.oid, r.privilege, g.role as grantee
from broker_private.broker_objects o
join rules r on r.schema = o.schema and r.kind = o.kind and (r.name is null or r.name = any (o.known_as))
join roles g on g.name = r.grantee
where o.column_name is null;
