-- broker.remote_service_bindings: who secures the dialogs to a far service, as
-- sys.remote_service_bindings. service_contract_id 0: all contracts.
create or replace view broker.remote_service_bindings with (security_barrier) as
select
  b.name,
  b.remote_service_binding_id,
  pg_catalog.pg_get_userbyid(b.owner) as principal_id,
  b.remote_service_name,
  0 as service_contract_id,
  coalesce((b.user_name).broker_user, pg_catalog.pg_get_userbyid((b.user_name).role)) as remote_principal_id,
  b.is_anonymous as is_anonymous_on
from broker_private.remote_service_bindings b
where exists (select from broker_private.all_seeing)
  or pg_catalog.pg_has_role(current_user, b.owner, 'USAGE')
  or pg_catalog.pg_has_role(current_user, (b.user_name).role, 'USAGE');
