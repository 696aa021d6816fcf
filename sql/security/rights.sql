-- Who may call what, made anew at every migration.
--
-- Everybody uses schema broker; nobody reaches a table; worker roles run the worker's functions.
--
-- The functions behind those of schema broker take the caller as their first argument and check it
-- themselves (broker_private.is_seen). So everybody may execute them.
do $$
declare
  this record;
begin
  -- A dropped role's rows give no right; a dump would show them as bare numbers, and a number may be another role's in another server.
  for this in
    delete from broker_private.permissions p
    where (p.grantee).role <> 0 and not exists (select from pg_catalog.pg_roles r where r.oid = (p.grantee).role)
    returning (p.grantee).role::oid as role, p.permission
  loop
    raise notice 'The role with oid % is dropped: so is its permission %.', this.role, this.permission;
  end loop;
  for this in
    delete from broker_private.worker_roles w
    where not exists (select from pg_catalog.pg_roles r where r.oid = w.role_name)
    returning w.role_name::oid as role
  loop
    raise notice 'The worker role with oid % is dropped.', this.role;
  end loop;
  grant usage on schema broker, broker_private to public;
  grant execute on all functions in schema broker to public;
  grant select on all tables in schema broker to public;
  revoke execute on all functions in schema broker_private from public;
  -- Public functions refuse for themselves what only they can see.
  grant execute on function broker_private.refuse(integer, text, text) to public;
  -- The views ask it with their reader's rights.
  grant execute on function broker_private.broker_problem() to public;
  -- The view broker.queue_messages works the ids of messages out with its reader's rights.
  grant execute on function broker_private.message_id(uuid, boolean, smallint, bigint) to public;
  -- The view broker.service_queues asks with its reader's rights whether rollbacks have turned a queue off.
  grant execute on function broker_private.is_poisoned(integer) to public;
  grant execute on function broker_private.held_status("char") to public;
  -- A reader's session that logged in as the queue's role says with its rights whether it received.
  grant execute on function broker_private.received_mark(integer) to public;
  -- The views of what workers hold in memory ask it with their reader's rights.
  grant execute on function broker_private.clock() to public;
  for this in
    select p.oid::pg_catalog.regprocedure as signature, 'public' as grantee
    from pg_catalog.pg_proc p
    where p.pronamespace = 'broker_private'::pg_catalog.regnamespace and p.prosecdef and p.proargnames[1] = 'caller'
    union all
    select p.oid::pg_catalog.regprocedure, pg_catalog.quote_ident(r.rolname)
    from pg_catalog.pg_proc p
    cross join broker_private.worker_roles w
    join pg_catalog.pg_roles r on r.oid = w.role_name
    where p.pronamespace = 'broker_private'::pg_catalog.regnamespace and p.prosecdef and p.proargnames[1] is distinct from 'caller'
  loop
    execute pg_catalog.format('grant execute on function %s to %s', this.signature, this.grantee);
  end loop;
end
$$;
