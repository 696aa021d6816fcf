-- One row if the reader of a view sees every object of the catalog, else none.
--
-- Such a reader is the owner of the database, pg_monitor, or a worker role. Service Broker asks for
-- VIEW DEFINITION, or for VIEW ANY DEFINITION.
create or replace view broker_private.all_seeing with (security_barrier) as
select true as sees_all
where pg_catalog.pg_has_role(current_user, 'pg_database_owner', 'USAGE')
  or pg_catalog.pg_has_role(current_user, 'pg_monitor', 'USAGE')
  or exists (
    select from broker_private.worker_roles w where pg_catalog.pg_has_role(current_user, w.role_name, 'USAGE')
  );
