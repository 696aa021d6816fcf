-- Who secures the dialogs to a far service, as sys.remote_service_bindings.
--
-- service_contract_id 0: all contracts.
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

comment on view broker.remote_service_bindings is
'Who secures the dialogs to a far service, as sys.remote_service_bindings.';
comment on column broker.remote_service_bindings.name is 'as create_remote_service_binding was told';
comment on column broker.remote_service_bindings.remote_service_binding_id is 'what other views refer to it by';
comment on column broker.remote_service_bindings.principal_id is 'the role that owns it';
comment on column broker.remote_service_bindings.remote_service_name is 'the far service';
comment on column broker.remote_service_bindings.service_contract_id is 'always 0: a binding holds for all contracts';
comment on column broker.remote_service_bindings.remote_principal_id is 'the user whose certificate secures the dialogs';
comment on column broker.remote_service_bindings.is_anonymous_on is 'whether the far side is not told who begins the dialog';
