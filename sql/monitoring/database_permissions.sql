-- What broker.grant gave, as sys.database_permissions.
--
-- CONNECT on the endpoint is among it, which SQL Server shows in sys.server_permissions.
create or replace view broker.database_permissions with (security_barrier) as
select
  case p.class when '<queue>' then 1 when '<schema collection>' then 10 when '<message type>' then 15 when '<contract>' then 16 when '<service>' then 17 else 105 end::smallint as class,
  case p.class
    when '<queue>' then 'OBJECT_OR_COLUMN'
    when '<schema collection>' then 'XML_SCHEMA_COLLECTION'
    when '<message type>' then 'MESSAGE_TYPE'
    when '<contract>' then 'SERVICE_CONTRACT'
    when '<service>' then 'SERVICE'
    else 'ENDPOINT'
  end as class_desc,
  p.securable_id as major_id,
  coalesce(
    (p.grantee).broker_user, case when (p.grantee).role = 0 then 'public' else pg_catalog.pg_get_userbyid((p.grantee).role) end
  ) as grantee_principal_id,
  p.permission as permission_name,
  'GRANT'::text as state_desc
from broker_private.permissions p
where exists (select from broker_private.all_seeing)
  or (p.grantee).role = 0 or pg_catalog.pg_has_role(current_user, (p.grantee).role, 'USAGE');

comment on view broker.database_permissions is
'What broker.grant gave, as sys.database_permissions: to the reader, to public, and for the database''s owner all.';
comment on column broker.database_permissions.class is '1 a queue, 10 a schema collection, 15 a message type, 16 a contract, 17 a service, 105 the endpoint';
comment on column broker.database_permissions.class_desc is 'the class in words';
comment on column broker.database_permissions.major_id is 'the id of the object in the view of its class';
comment on column broker.database_permissions.grantee_principal_id is 'who has it: a role, public, or a broker user';
comment on column broker.database_permissions.permission_name is 'SEND, RECEIVE, REFERENCES or CONNECT';
comment on column broker.database_permissions.state_desc is 'always GRANT: there is no DENY';
